"""Batches: rows, bounds, tasks, and what is said when options or offsets make no sense."""

from __future__ import annotations

import datetime
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition

from penstock.kafka.errors import ClusterError
from penstock.spark import fetch
from penstock.spark.cluster import Cluster
from penstock.spark.errors import DataLossError
from penstock.spark.fetch import Range, Reading, read_range
from penstock.spark.options import source_options
from support.helpers import TopicMaker, admin, produce_all, producer
from support.process import BrokerProcess, free_port
from support.spark_source import batch, fill, fill_numbers, places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STAMP_MS = 1_700_000_000_123
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


def error_of(spark: SparkSession, node: BrokerProcess, **options: Any) -> str:
    """What a query that cannot run says."""
    with pytest.raises(Exception) as failed:  # noqa: PT011  # Spark has several kinds of them
        batch(spark, node, **options).collect()
    return str(failed.value)


def test_rows_have_the_columns_of_sparks_kafka_source(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic()
    headers = [("a", b"1"), ("a", None), ("ü", b"")]
    messages: list[dict[str, Any]] = [
        {"key": b"\x00\xff", "value": b"v", "timestamp": STAMP_MS, "headers": headers},
        {"key": None, "value": None, "timestamp": STAMP_MS + 1},
        {"key": b"", "value": b"", "timestamp": STAMP_MS + 2, "headers": [("b", b"2")]},
    ]
    produce_all(producer(node), name, messages)
    frame = batch(spark, node, subscribe=name, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    rows = frame.orderBy("offset").collect()
    assert [row["key"] for row in rows] == [b"\x00\xff", None, b""]
    assert [row["value"] for row in rows] == [b"v", None, b""]
    assert [(r["topic"], r["partition"], r["offset"]) for r in rows] == [
        (name, 0, offset) for offset in range(3)
    ]
    stamps = [row["timestamp"].astimezone(datetime.UTC).timestamp() * 1000 for row in rows]
    assert [round(stamp) for stamp in stamps] == [STAMP_MS, STAMP_MS + 1, STAMP_MS + 2]
    assert {row["timestampType"] for row in rows} == {0}
    found = [[(h["key"], h["value"]) for h in row["headers"] or []] for row in rows]
    assert found == [headers, [], [("b", b"2")]]
    assert rows[1]["headers"] is None
    assert "headers" not in batch(spark, node, subscribe=name).columns


def test_every_compression_and_the_brokers_own_time(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic(config={"message.timestamp.type": "LogAppendTime"})
    before_s = time.time() - 1
    for kind in COMPRESSIONS:
        client = producer(node, compression_type=kind)
        messages = [
            {"value": f"{kind}-{n}" * 20, "timestamp": STAMP_MS, "headers": [("k", kind)]}
            for n in range(100)
        ]
        produce_all(client, name, messages)
    rows = batch(spark, node, subscribe=name).orderBy("offset").collect()
    assert [row["value"].decode() for row in rows] == [
        f"{kind}-{n}" * 20 for kind in COMPRESSIONS for n in range(100)
    ]
    assert {row["timestampType"] for row in rows} == {1}
    assert min(row["timestamp"].timestamp() for row in rows) > before_s


def test_large_and_small_records_mixed(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic()
    sizes = [0, 1, 60, 63, 64, 65, 8_000, 8_191, 8_192, 8_193, 100_000, 900_000] * 3
    produce_all(producer(node), name, [{"value": bytes(size)} for size in sizes])
    rows = batch(spark, node, subscribe=name).orderBy("offset").collect()
    assert [len(row["value"]) for row in rows] == sizes


def test_the_three_ways_to_subscribe(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker
) -> None:
    first, second = topic(partitions=2), topic()
    fill_numbers(node, first, 2, 3)
    fill_numbers(node, second, 1, 5)
    assert batch(spark, node, subscribe=f"{first}, {second}").count() == 11
    assert batch(spark, node, subscribePattern=f"^({first}|{second})$").count() == 11
    topics = batch(spark, node, subscribePattern=second[1:]).select("topic").distinct().collect()
    assert second in {row["topic"] for row in topics}, "a part of the name is enough"
    chosen = json.dumps({first: [1], second: [0]})
    assert batch(spark, node, assign=chosen).count() == 8


def test_a_pattern_leaves_out_what_brokers_keep_for_themselves(
    node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic()
    client = producer(node, transactional_id=f"{name}-a")
    client.init_transactions(20)
    internal = "__transaction_state"
    assert internal in admin(node).list_topics().topics
    options = {"kafka.bootstrap.servers": node.bootstrap, "subscribePattern": "."}
    found = {topic for topic, _ in Cluster(source_options(options)).partitions()}
    assert name in found
    assert internal not in found


def test_offsets_as_bounds(spark: SparkSession, node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic(partitions=2)
    fill_numbers(node, name, 2, 10)
    frame = batch(
        spark,
        node,
        subscribe=name,
        startingOffsets=json.dumps({name: {"0": 3, "1": -2}}),
        endingOffsets=json.dumps({name: {"0": 7, "1": -1}}),
    )
    assert places(frame) == [(0, n) for n in range(3, 7)] + [(1, n) for n in range(10)]
    assert batch(spark, node, subscribe=name, endingOffsets="latest").count() == 20
    nothing = json.dumps({name: {"0": 10, "1": 10}})
    assert batch(spark, node, subscribe=name, startingOffsets=nothing).count() == 0


def test_times_as_bounds(spark: SparkSession, node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic(partitions=2)
    for partition in (0, 1):
        messages = [
            {"value": "x", "partition": partition, "timestamp": STAMP_MS + n} for n in range(9)
        ]
        produce_all(producer(node), name, messages)
    frame = batch(
        spark, node, subscribe=name, startingTimestamp=STAMP_MS + 3, endingTimestamp=STAMP_MS + 5
    )
    assert places(frame) == [(p, n) for p in (0, 1) for n in (3, 4)]
    frame = batch(
        spark,
        node,
        subscribe=name,
        startingOffsetsByTimestamp=json.dumps({name: {"0": STAMP_MS + 8, "1": 0}}),
        endingOffsetsByTimestamp=json.dumps({name: {"0": STAMP_MS + 99, "1": STAMP_MS + 1}}),
    )
    assert places(frame) == [(0, 8), (1, 0)]
    said = error_of(spark, node, subscribe=name, startingTimestamp=STAMP_MS + 99)
    assert f"option startingTimestamp: topic {name} partition 0 has no record of that time" in said
    late = {"startingTimestamp": STAMP_MS + 99, "startingOffsetsByTimestampStrategy": "latest"}
    assert batch(spark, node, subscribe=name, **late).count() == 0


def test_tasks_are_cut_as_asked(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic(partitions=2)
    fill(node, name, {0: ["x"] * 900, 1: ["x"] * 100})
    plain = batch(spark, node, subscribe=name)
    assert plain.rdd.getNumPartitions() == 2
    many = batch(spark, node, subscribe=name, minPartitions=10)
    assert many.rdd.getNumPartitions() == 10
    assert places(many) == places(plain)
    small = batch(spark, node, subscribe=name, maxRecordsPerPartition=300)
    assert small.rdd.getNumPartitions() == 4
    assert places(small) == places(plain)


def test_aborted_transactions_and_open_ones(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic()
    client = producer(node, transactional_id=f"{name}-a")
    client.init_transactions(20)
    for number, commits in enumerate([True, False, True, False, True]):
        client.begin_transaction()
        for n in range(50):
            client.produce(name, f"{number}-{n}", partition=0)
        client.flush(20)  # an abort drops what was not sent
        client.commit_transaction(20) if commits else client.abort_transaction(20)
    still_open = producer(node, transactional_id=f"{name}-b")
    still_open.init_transactions(20)
    still_open.begin_transaction()
    still_open.produce(name, "open", partition=0)
    still_open.flush(20)
    values = _values(spark, node, name, isolation_level="read_committed")
    assert values == [f"{number}-{n}" for number in (0, 2, 4) for n in range(50)]
    assert values == _values(spark, node, name, kafka_isolation_level="read_committed")
    assert len(_values(spark, node, name)) == 251
    still_open.abort_transaction(20)


def _values(spark: SparkSession, node: BrokerProcess, name: str, **options: Any) -> list[str]:
    rows = batch(spark, node, subscribe=name, **options).orderBy("offset").collect()
    return [row["value"].decode() for row in rows]


def test_a_compacted_topic_has_gaps(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker
) -> None:
    """An aborted transaction leaves the same gaps behind as compaction: at the end, too."""
    name = topic()
    client: Producer = producer(node, transactional_id=f"{name}-gap")
    client.init_transactions(20)
    client.begin_transaction()
    client.produce(name, "gone", partition=0)
    client.flush(20)
    client.abort_transaction(20)
    assert _values(spark, node, name, isolation_level="read_committed") == []
    tasks = batch(spark, node, subscribe=name, isolation_level="read_committed", minPartitions=2)
    assert tasks.count() == 0


def test_trimmed_records(spark: SparkSession, node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic()
    fill_numbers(node, name, 1, 20)
    futures = admin(node).delete_records([TopicPartition(name, 0, 8)])
    assert [future.result(10) for future in futures.values()]
    assert places(batch(spark, node, subscribe=name)) == [(0, n) for n in range(8, 20)]
    early = json.dumps({name: {"0": 5}})
    said = error_of(spark, node, subscribe=name, startingOffsets=early)
    assert f"option startingOffsets: topic {name} partition 0 has offsets 8 to 20" in said
    assert "and 5 is not among them" in said
    frame = batch(spark, node, subscribe=name, startingOffsets=early, failOnDataLoss="false")
    assert places(frame) == [(0, n) for n in range(8, 20)]
    late = json.dumps({name: {"0": 21}})
    assert "and 21 is not among them" in error_of(spark, node, subscribe=name, endingOffsets=late)


def test_records_that_go_after_the_query_was_planned(
    node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic()
    fill_numbers(node, name, 1, 20)
    for future in admin(node).delete_records([TopicPartition(name, 0, 8)]).values():
        future.result(10)

    def offsets(how: Reading) -> list[int]:
        batches = read_range(Range(name, 0, 5, 12), how)
        return [n for found in batches for n in found.column("offset").to_pylist()]

    with pytest.raises(Exception, match=f"topic {name} partition 0: offsets 5 to 7 are gone"):
        offsets(Reading(node.bootstrap))
    assert offsets(Reading(node.bootstrap, fail_on_data_loss=False)) == [8, 9, 10, 11]


def test_a_topic_that_goes_after_the_query_was_planned(
    node: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "UNKNOWN_S_MAX", 0.3)
    wanted = Range("never-was", 0, 5, 12)
    with pytest.raises(DataLossError, match=r"offsets 5 to 11 are gone \(the topic does not exist"):
        list(read_range(wanted, Reading(node.bootstrap)))
    assert list(read_range(wanted, Reading(node.bootstrap, fail_on_data_loss=False))) == []


def test_a_cluster_that_does_not_answer() -> None:
    how = Reading(f"127.0.0.1:{free_port()}", poll_timeout_s=0.3)
    with pytest.raises(
        ClusterError, match=r"topic t partition 3 from offset 5: .*onnection refused"
    ):
        list(read_range(Range("t", 3, 5, 12), how))


def test_a_range_in_the_middle_with_keys_and_headers(
    node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic()
    messages = [
        {"key": str(n) if n % 3 else None, "value": "v" * n, "headers": [("h", str(n))] * (n % 3)}
        for n in range(500)
    ]
    produce_all(producer(node, compression_type="lz4"), name, messages)
    wanted = Range(name, 0, 17, 433)
    how = Reading(node.bootstrap, headers=True)
    rows = [row for found in read_range(wanted, how) for row in found.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(17, 433))
    for row in rows:
        n = row["offset"]
        assert row["key"] == (str(n).encode() if n % 3 else None)
        assert row["value"] == b"v" * n
        assert row["headers"] == ([{"key": "h", "value": str(n).encode()}] * (n % 3) or None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "exactly one of the options subscribe, subscribePattern and assign (none given)"),
        ({"subscribe": "a", "assign": "{}"}, "(subscribe and assign given)"),
        ({"subscribe": "a", "startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({"subscribe": "nowhere"}, "topic nowhere (subscribe nowhere) does not exist"),
        ({"assign": '{"a": 1}'}, 'option assign must have the form {"topic": [0, 1]}'),
        ({"subscribe": "a", "startingOffsets": "{"}, "option startingOffsets is not valid JSON"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "startingOffsets of a batch cannot be"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "endingOffsets of a batch cannot be"),
        ({"subscribe": "a", "minPartitions": "0"}, "minPartitions must be a whole number from 1"),
        ({"subscribe": "a", "failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false"),
        ({"subscribe": "a", "isolation_level": "x"}, "isolation.level must be read_committed or"),
        ({"subscribePattern": "("}, "option subscribePattern is no regular expression"),
        ({"subscribe": "a", "kafka_no_such_thing": "1"}, "unknown option kafka.no.such.thing"),
        ({"subscribe": "a", "kafka_bootstrap_servers": "x"}, "'x' is not an address"),
    ],
)
def test_bad_options_are_named(
    spark: SparkSession, node: BrokerProcess, options: dict[str, str], said: str
) -> None:
    assert said in error_of(spark, node, **options)


def test_offsets_must_name_every_partition_and_no_other(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic(partitions=2)
    for offsets, said in (
        ({"0": 0}, f"startingOffsets leaves out topic {name} partition 1"),
        ({"0": 0, "1": 0, "2": 0}, f"startingOffsets names topic {name} partition 2"),
    ):
        given = json.dumps({name: offsets})
        assert said in error_of(spark, node, subscribe=name, startingOffsets=given)
    assert f"topic {name} has no partition 7" in error_of(
        spark, node, assign=json.dumps({name: [7]})
    )
