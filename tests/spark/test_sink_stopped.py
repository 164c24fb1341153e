"""A query that is stopped in the middle of a batch leaves nothing open for readers to wait for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from penstock.spark.stream_writer import query_of
from support.helpers import TopicMaker, consumer, produce_all, producer
from support.process import BrokerProcess
from support.spark_sink import values
from support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

QUICK = b"quick" * 40_000
"""Larger than the buffers on its way to the task's Python worker."""
ROWS = [QUICK, b"slow"]
PER_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
SEEN_SECONDS_MAX = 60.0
SLOW = "if(value = 'slow', java_method('java.lang.Thread', 'sleep', 60000L), '') as slept"


def start(rows: DataFrame, node: BrokerProcess, target: str, checkpoint: Path) -> StreamingQuery:
    writer = rows.writeStream.format("penstock").option("topic", target)
    writer = writer.option("kafka.bootstrap.servers", node.bootstrap)
    return writer.option("checkpointLocation", str(checkpoint)).start()


def test_its_transactions_are_ended(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, tmp_path: Path
) -> None:
    source, target = topic(), topic()
    produce_all(producer(node), source, [{"value": value} for value in ROWS])
    rows = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", node.bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("cast(value as string) as value")
    )
    checkpoint = tmp_path / "checkpoint"
    spark.conf.set(PER_BATCH, 1)
    query = start(rows.selectExpr("value", SLOW), node, target, checkpoint)
    reader = consumer(node, isolation_level="read_uncommitted")
    place = TopicPartition(target, 0)
    try:
        eventually(lambda: reader.get_watermark_offsets(place)[1] > 0, SEEN_SECONDS_MAX)
    finally:
        query.stop()
        reader.close()
        spark.conf.unset(PER_BATCH)
    produce_all(producer(node), target, [{"value": b"after"}])
    assert values(node, target) == {b"after": 1}, "nothing that was open holds it back"
    again = start(rows, node, target, checkpoint)
    try:
        again.processAllAvailable()
    finally:
        again.stop()
    assert values(node, target) == {b"after": 1, QUICK: 1, b"slow": 1}


def test_where_a_checkpoint_says_its_query(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    assert query_of(str(folder)) is None
    folder.mkdir()
    (folder / "metadata").write_text('{"id":"cafe"}')
    assert query_of(str(folder)) == "cafe"
    assert query_of(folder.as_uri()) == "cafe"
    assert query_of(f"file:{tmp_path}/a%20folder") == "cafe"
    assert query_of("s3a://bucket/a") is None
    assert query_of(None) is None
    (folder / "metadata").write_text("torn")
    assert query_of(str(folder)) is None
