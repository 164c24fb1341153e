"""Python workers: their memory is bounded whatever a topic holds, and their connections serve one
task after the other.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.options import FETCH_BYTES_MAX
from support.helpers import TopicMaker, produce_all, producer
from support.node import NodeProcess
from support.process import BrokerProcess
from support.spark_sink import values
from support.spark_source import batch, fill_numbers
from support.spark_watched import NAME, growths, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUE_BYTES = 64 * 1024
VALUES = 5_000
GROWTH_BYTES_MAX = 16 * FETCH_BYTES_MAX
"""Two answers, a chunk, its Arrow batch and what allocators keep; the topic has twice as much."""
ARROW_BYTES = 16 * 1024 * 1024
TASKS = 40
CONNECTIONS_MAX = TASKS // 2


def test_memory_does_not_grow_with_the_topic(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, tmp_path: Path
) -> None:
    assert VALUES * VALUE_BYTES > 2 * GROWTH_BYTES_MAX
    spark.dataSource.register(watched(tmp_path))
    source, target = topic(), topic()
    client = producer(node, compression_type="lz4", linger_ms=20)
    produce_all(client, source, [{"value": bytes(VALUE_BYTES)}] * VALUES)
    options = {"kafka.bootstrap.servers": node.bootstrap}
    frame = spark.read.format(NAME).options(**options, subscribe=source).load()
    assert frame.selectExpr("sum(length(value))").first() == (VALUES * VALUE_BYTES,)
    [grown] = growths(tmp_path)
    assert 0 <= grown < GROWTH_BYTES_MAX

    # How much the sink holds is what Spark hands it at once.
    spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(ARROW_BYTES))
    try:
        writer = frame.select("value").write.format(NAME).mode("append")
        writer.options(**options, topic=target, **{"kafka.compression.type": "lz4"}).save()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxBytesPerBatch")
    assert values(node, target) == {bytes(VALUE_BYTES): VALUES}
    assert max(growths(tmp_path)) < GROWTH_BYTES_MAX


def test_connections_serve_one_task_after_the_other(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker
) -> None:
    assert isinstance(node, NodeProcess)
    source, target = topic(), topic()
    fill_numbers(node, source, 1, 10 * TASKS)

    def opened() -> float:
        return node.metric("penstock_connections_accepted_total")

    frame = batch(spark, node, subscribe=source, minPartitions=TASKS)
    before = opened()
    assert frame.rdd.getNumPartitions() == TASKS
    assert frame.count() == 10 * TASKS
    assert opened() - before <= CONNECTIONS_MAX

    before = opened()
    rows = spark.range(0, TASKS, 1, TASKS).selectExpr("string(id) value")
    options = {"kafka.bootstrap.servers": node.bootstrap, "topic": target}
    rows.write.format("penstock").mode("append").options(**options).save()
    assert opened() - before <= CONNECTIONS_MAX
    assert values(node, target) == {b"%d" % n: 1 for n in range(TASKS)}
