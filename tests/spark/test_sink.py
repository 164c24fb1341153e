"""The sink through Spark: columns, partitions, errors, batches and streams."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Message
from kafka.partitioner.default import murmur2

from support.helpers import TopicMaker, produce_all, producer
from support.process import BrokerProcess
from support.spark_sink import committed, values
from support.spark_source import run_to_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Write = Callable[..., None]
AT = datetime(2026, 1, 31, 10, 0, 0, 123_000, tzinfo=UTC)


@pytest.fixture
def write(node: BrokerProcess) -> Write:
    """Writes a DataFrame to the node."""

    def write(frame: DataFrame, **options: str) -> None:
        writer = frame.write.format("penstock").mode("append")
        options = {"kafka.bootstrap.servers": node.bootstrap, **options}
        writer.options(**options).save()

    return write


def content(message: Message) -> tuple[Any, ...]:
    headers = message.headers()
    return message.topic(), message.partition(), message.key(), message.value(), headers or []


def error_of(write: Write, frame: DataFrame, **options: str) -> str:
    with pytest.raises(Exception) as failed:  # noqa: PT011  # Spark has several kinds of them
        write(frame, **options)
    return str(failed.value)


def test_all_columns(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, write: Write
) -> None:
    one, two = topic(), topic(partitions=3)
    frame = spark.createDataFrame(
        [
            (one, b"k1", b"v1", None, [("a", b"1"), ("b", None)], AT),
            (two, b"k2", None, 2, [], AT + timedelta(milliseconds=7)),
            (two, None, b"", 1, None, None),
        ],
        "topic string, key binary, value binary, partition int,"
        " headers array<struct<key:string,value:binary>>, timestamp timestamp",
    )
    before_ms = time.time() * 1000
    write(frame)
    assert [content(m) for m in committed(node, one)] == [
        (one, 0, b"k1", b"v1", [("a", b"1"), ("b", None)])
    ]
    assert sorted(content(m) for m in committed(node, two)) == [
        (two, 1, None, b"", []),
        (two, 2, b"k2", None, []),
    ]
    at_ms = round(AT.timestamp() * 1000)
    assert [m.timestamp()[1] for m in committed(node, one)] == [at_ms]
    times = {m.partition(): m.timestamp()[1] for m in committed(node, two)}
    assert times[2] == at_ms + 7
    assert before_ms - 1000 < times[1] <= time.time() * 1000, "null is now"


def test_times_that_the_topic_refuses(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, write: Write
) -> None:
    name = topic(config={"message.timestamp.before.max.ms": "1000"})
    frame = spark.createDataFrame([(b"v", AT)], "value binary, timestamp timestamp")
    said = error_of(write, frame, topic=name)
    assert f"of topic '{name}' refuses the timestamps of rows" in said
    assert committed(node, name) == []
    text = frame.selectExpr("value", "string(timestamp) as timestamp")
    assert "column 'timestamp' is string, the sink wants timestamp: cast it" in error_of(
        write, text, topic=name
    )


def test_text_is_written_as_utf_8_and_the_option_topic_wins(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, write: Write
) -> None:
    name = topic()
    write(spark.createDataFrame([("elsewhere", "ü")], "topic string, value string"), topic=name)
    assert values(node, name) == {"ü".encode(): 1}


def test_keys_go_where_other_clients_put_them(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, write: Write
) -> None:
    name = topic(partitions=5)
    write(spark.range(300).selectExpr("cast(id as string) key", "'v' value"), topic=name)
    found = {m.key(): m.partition() for m in committed(node, name)}
    keys = [b"%d" % i for i in range(300)]
    assert found == {key: (murmur2(key) & 0x7FFFFFFF) % 5 for key in keys}


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_every_compression_and_delivery(
    spark: SparkSession,
    node: BrokerProcess,
    topic: TopicMaker,
    write: Write,
    compression: str,
    delivery: str,
) -> None:
    name = topic(partitions=2)
    options = {"topic": name, "delivery": delivery, "kafka.compression.type": compression}
    write(spark.range(0, 1000, 1, 2).selectExpr("cast(id as string) value"), **options)
    assert values(node, name) == {b"%d" % i: 1 for i in range(1000)}


def test_batches_are_made_smaller_for_topics_with_a_small_limit(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, write: Write
) -> None:
    name = topic(config={"max.message.bytes": "2000"})
    write(spark.range(0, 500, 1, 1).selectExpr("lpad(id, 100, ' ') value"), topic=name)
    assert [int(m.value() or b"") for m in committed(node, name)] == list(range(500))


def test_a_row_that_is_too_large_is_an_error_and_nothing_is_visible(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, write: Write
) -> None:
    name = topic(config={"max.message.bytes": "2000"})
    said = error_of(
        write, spark.range(0, 10, 1, 1).selectExpr("lpad('x', 500 * id, 'x') value"), topic=name
    )
    assert f"a row of 2000 bytes is larger than topic '{name}' allows" in said
    assert "max.message.bytes" in said
    assert committed(node, name) == []


def test_rows_of_tasks_that_succeed_are_not_visible_when_another_fails(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, write: Write
) -> None:
    name = topic(partitions=2)
    frame = spark.range(0, 10, 1, 2).selectExpr(
        "cast(id as string) value", "if(id = 9, 99, cast(id % 2 as int)) partition"
    )
    assert "partition 99 of topic" in error_of(write, frame, topic=name)
    write(spark.range(3).selectExpr("cast(id as string) value"), topic=name)
    assert values(node, name) == {b"0": 1, b"1": 1, b"2": 1}


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("id", {}, "there is no column 'value' to write"),
        ("id as value", {}, "column 'value' is bigint, the sink wants string or binary"),
        ("'v' value, id as partition", {}, "column 'partition' is bigint, the sink wants int"),
        ("'v' value, 'h' headers", {}, "column 'headers' is string, the sink wants array<struct"),
        ("'v' value", {"topic": ""}, "cannot use topic ''"),
        ("'v' value", {"topic": "not-there"}, "'not-there': UNKNOWN_TOPIC_OR_PARTITION"),
        ("'v' value", {"topik": "t"}, "unknown option topik (did you mean topic?)"),
        ("'v' value", {"delivery": "twice"}, "option delivery must be exactly-once or"),
        ("'v' value", {"txnAppId": "a"}, "txnAppId and txnVersion go together"),
        ("'v' value", {"txnAppId": "", "txnVersion": "1"}, "option txnAppId is empty"),
        ("'v' value", {"kafka.acks": "1"}, "the sink always writes with all"),
        ("'v' value", {"kafka.ssl.x": "1"}, "unknown option kafka.ssl.x"),
        ("'v' value", {"kafka.compression.type": "rar"}, "must be one of none, gzip"),
        ("'v' value", {"kafka.transaction.timeout.ms": "99999999"}, "transaction.max.timeout.ms"),
        ("'v' value, string(null) topic", {"topic": None}, "a row has no topic"),
        ("'v' value", {"topic": None}, "give the option topic, or the rows a column 'topic'"),
    ],
)
def test_what_cannot_be_written_is_said(
    spark: SparkSession,
    topic: TopicMaker,
    write: Write,
    columns: str,
    options: dict[str, Any],
    said: str,
) -> None:
    asked = {"topic": topic(), **options}
    given = {name: value for name, value in asked.items() if value is not None}
    frame = spark.range(1).selectExpr(*columns.split(", "))
    assert said in error_of(write, frame, **given)


def test_a_named_batch_is_written_once(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, write: Write
) -> None:
    name = topic()
    frame = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) value")
    for version in ("1", "1", "2"):
        write(frame, topic=name, txnAppId=f"job-{name}", txnVersion=version)
    assert values(node, name) == {b"%d" % i: 2 for i in range(100)}


def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, tmp_path: Path
) -> None:
    source, target = topic(partitions=2), topic(partitions=2)
    wanted: Counter[bytes] = Counter()
    for start in (0, 100):
        rows = [b"%d" % i for i in range(start, start + 100)]
        produce_all(producer(node), source, [{"value": row, "partition": 1} for row in rows])
        wanted.update(rows)
        writer = (
            spark.readStream.format("penstock")
            .option("kafka.bootstrap.servers", node.bootstrap)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "60")
            .load()
            .select("key", "value")
            .writeStream.format("penstock")
            .option("kafka.bootstrap.servers", node.bootstrap)
            .option("topic", target)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
        )
        run_to_end(writer.start)
        assert values(node, target) == wanted
