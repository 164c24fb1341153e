"""What users and machines do wrong: the error says what happened and where, nothing is lost, and a
query that is started again goes on exactly where it was.

Options and offsets of batches that make no sense: `test_source_batch.py`; columns: `test_sink.py`;
checkpoints of other topics and records that are gone: `test_source_stream.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from support.helpers import TopicMaker, admin, make_topic, produce_all, producer
from support.process import BrokerProcess
from support.spark_sink import values
from support.spark_source import (
    ENDS_S_MAX,
    STARTS_MAX,
    Streams,
    fill_numbers,
    run_to_end,
    stream,
    was_late,
)
from support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

BATCH_ROWS = 10
BAD_OFFSET = 15
ROWS = 20
LARGE_BYTES = 3_000


@pytest.fixture
def streams(spark: SparkSession, node: BrokerProcess, tmp_path: Path) -> Iterator[Streams]:
    with Streams(spark, node, tmp_path / "checkpoint") as made:
        yield made


class Copy:
    """A stream from topic to topic, started again and again with one checkpoint."""

    def __init__(self, spark: SparkSession, node: BrokerProcess, source: str, place: Path) -> None:
        self._spark, self._node, self._source, self._place = spark, node, source, place

    def start(self, columns: list[str], *, rows: int, **sink: str) -> StreamingQuery:
        frame: DataFrame = stream(
            self._spark,
            self._node,
            subscribe=self._source,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=rows,
        )
        writer = frame.selectExpr(*columns).writeStream.format("penstock")
        options = {
            "kafka.bootstrap.servers": self._node.bootstrap,
            "checkpointLocation": str(self._place),
            **sink,
        }
        return writer.options(**options).queryName("copy").trigger(availableNow=True).start()

    def run(self, columns: list[str], **sink: str) -> None:
        run_to_end(lambda: self.start(columns, rows=BATCH_ROWS, **sink))

    def error(self, columns: list[str], **sink: str) -> str:
        with pytest.raises(Exception) as failed:  # noqa: PT011  # Spark has several kinds of them
            self.run(columns, **sink)
        return str(failed.value)


class Fault(NamedTuple):
    """What is wrong with the row at `BAD_OFFSET`, what is said of it, and how it is mended: at the
    cluster, or in the query. `TARGET` stands for the topic that is written to.
    """

    columns: list[str]
    said: str
    at_cluster: Callable[[BrokerProcess, str], None] | None = None
    in_query: list[str] | None = None


def larger_messages(node: BrokerProcess, topic: str) -> None:
    entry = ConfigEntry("max.message.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in admin(node).incremental_alter_configs([resource]).values():
        future.result(20)


def more_partitions(node: BrokerProcess, topic: str) -> None:
    for future in admin(node).create_partitions([NewPartitions(topic, 6)]).values():
        future.result(20)


def make_other(node: BrokerProcess, topic: str) -> None:
    make_topic(node, f"{topic}-x")


def bad(sql: str, otherwise: str) -> str:
    return f"if(offset = {BAD_OFFSET}, {sql}, {otherwise})"


FAULTS = {
    "a message larger than the topic allows": Fault(
        ["'TARGET' topic", bad(f"repeat('x', {LARGE_BYTES})", "string(value)") + " value"],
        f"a row of {LARGE_BYTES} bytes is larger than topic 'TARGET' allows; raise the topic's"
        " max.message.bytes",
        at_cluster=larger_messages,
    ),
    "no topic": Fault(
        ["value", bad("null", "'TARGET'") + " topic"],
        "a row has no topic: column 'topic' is null",
        in_query=["value", "'TARGET' topic"],
    ),
    "an unknown topic": Fault(
        ["value", bad("'TARGET-x'", "'TARGET'") + " topic"],
        "cannot use topic 'TARGET-x': UNKNOWN_TOPIC_OR_PARTITION; create the topic first",
        at_cluster=make_other,
    ),
    "a partition that is not there yet": Fault(
        ["value", "'TARGET' topic", bad("5", "0") + " partition"],
        "column 'partition' asks for partition 5 of topic 'TARGET', which has 2: 0 to 1",
        at_cluster=more_partitions,
    ),
    "a negative partition": Fault(
        ["value", "'TARGET' topic", bad("-1", "0") + " partition"],
        "column 'partition' asks for partition -1 of topic 'TARGET', which has 2: 0 to 1",
        in_query=["value", "'TARGET' topic", "0 partition"],
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_row_that_cannot_be_written_stops_the_stream_until_it_is_mended(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, tmp_path: Path, fault: Fault
) -> None:
    source, target = topic(), topic(partitions=2, config={"max.message.bytes": "2000"})
    fill_numbers(node, source, 1, ROWS)
    copy = Copy(spark, node, source, tmp_path / "checkpoint")

    def to_target(columns: list[str]) -> list[str]:
        return [column.replace("TARGET", target) for column in columns]

    assert fault.said.replace("TARGET", target) in copy.error(to_target(fault.columns))
    assert values(node, target) == {b"%d" % n: 1 for n in range(BATCH_ROWS)}
    if fault.at_cluster is not None:
        fault.at_cluster(node, target)
    copy.run(to_target(fault.in_query or fault.columns))
    found = values(node, target)
    if f"{target}-x" in admin(node).list_topics().topics:
        found += values(node, f"{target}-x")
    if fault.at_cluster is larger_messages:
        found[b"%d" % BAD_OFFSET] = found.pop(b"x" * LARGE_BYTES)
    assert found == {b"%d" % n: 1 for n in range(ROWS)}


def test_a_node_killed_under_a_stream_from_topic_to_topic(
    spark: SparkSession, fresh_node: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """The query waits for the node, or fails and is started again; each row is there once."""
    node = fresh_node()
    source, target = make_topic(node, "from", 2), make_topic(node, "to", 2)
    rows = [b"row %d" % n for n in range(300)]
    messages = [{"value": row, "partition": n % 2} for n, row in enumerate(rows)]
    produce_all(producer(node), source, messages)
    copy = Copy(spark, node, source, tmp_path / "checkpoint")
    query = copy.start(["key", "value"], rows=BATCH_ROWS, topic=target)
    try:
        eventually(lambda: _batches_done(query) >= 3, ENDS_S_MAX)
        node.kill()
        assert query.isActive, "the node was to be killed while rows were on their way"
        node.start()
        for _ in range(STARTS_MAX):
            if _ended_well(query):
                break
            query = copy.start(["key", "value"], rows=BATCH_ROWS, topic=target)
        assert values(node, target) == dict.fromkeys(rows, 1)
    finally:
        query.stop()


def _batches_done(query: StreamingQuery) -> int:
    assert query.exception() is None
    done = query.lastProgress
    return 0 if done is None else int(done["batchId"]) + 1


def _ended_well(query: StreamingQuery) -> bool:
    """Whether a query came to its end; one that failed must have said why."""
    from pyspark.errors import StreamingQueryException

    try:
        ended = query.awaitTermination(ENDS_S_MAX)
    except StreamingQueryException as e:
        said = e
    else:
        assert ended, "the query neither ended nor failed"
        return True
    text = str(said)
    from_us = "penstock.spark.errors." in text or "penstock.kafka.errors." in text
    assert from_us or was_late(said)
    return False


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "nowhere"}, "topic nowhere (subscribe nowhere) does not exist on "),
        ({"subscribe": "TOPIC", "subscribed": "x"}, "subscribed (did you mean subscribe?)"),
        (
            {"subscribe": "TOPIC", "startingOffsets": json.dumps({"TOPIC": {"0": 9}})},
            "option startingOffsets: topic TOPIC partition 0 has offsets 0 to 3, and 9 is not"
            " among them; correct it, or set failOnDataLoss to false",
        ),
        (
            {"subscribe": "TOPIC", "startingTimestamp": 9_999_999_999_999},
            "option startingTimestamp: topic TOPIC partition 0 has no record of that time",
        ),
    ],
    ids=["topic", "option", "offset", "time"],
)
def test_a_stream_that_cannot_start(
    streams: Streams, node: BrokerProcess, topic: TopicMaker, options: dict[str, Any], said: str
) -> None:
    name = topic()
    fill_numbers(node, name, 1, 3)
    given = {option: str(value).replace("TOPIC", name) for option, value in options.items()}
    assert said.replace("TOPIC", name) in streams.error(**given)


def test_a_stream_without_a_value_column(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, tmp_path: Path
) -> None:
    source, target = topic(), topic()
    fill_numbers(node, source, 1, 3)
    copy = Copy(spark, node, source, tmp_path / "checkpoint")
    said = copy.error(["key", "value as body"], topic=target)
    assert "there is no column 'value' to write" in said
    assert "the query has key, body" in said
    copy.run(["key", "value"], topic=target)
    assert values(node, target) == {b"0": 1, b"1": 1, b"2": 1}


def test_a_topic_is_only_appended_to(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic()
    writer = spark.createDataFrame([("v",)], "value string").write.format("penstock")
    options = {"kafka.bootstrap.servers": node.bootstrap, "topic": name}
    for mode, said in (
        ("overwrite", "mode 'overwrite' is not for topics, which can only be appended to"),
        ("ignore", 'cannot be written in the "Ignore" mode'),
        ("error", 'cannot be written in the "ErrorIfExists" mode'),
    ):
        with pytest.raises(Exception) as failed:  # noqa: PT011  # Spark has several kinds of them
            writer.options(**options).mode(mode).save()
        assert said in str(failed.value)
    assert values(node, name) == {}
    writer.options(**options).mode("append").save()
    assert values(node, name) == {b"v": 1}
