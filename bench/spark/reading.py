"""The source: rows of 100 B counted in a batch and in a stream's micro-batches, and what a
micro-batch costs beside its rows.

The overhead of a micro-batch is what one with a single new row takes longer than one of Spark's
rate source. Memory is the largest that any Python worker ever had.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.spark.measuring import (
    PARTITIONS,
    formats,
    in_turns,
    session,
    together,
    worker_mb_max,
)
from bench.spark.node import Node, fill, make_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SMALL_BATCHES = 15
BATCHES_OF_STREAM = 4


def source(reader: Any, format_name: str, node: Node, topic: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": node.bootstrap, "subscribe": topic}
    given |= {"startingOffsets": "earliest"} | options
    frame: DataFrame = reader.format(format_name).options(**given).load()
    return frame


def batch_s(spark: SparkSession, node: Node, rows: int, format_name: str) -> float:
    frame = source(spark.read, format_name, node, "rows")
    begun = time.perf_counter()
    assert frame.count() == rows, "rows are missing"
    return time.perf_counter() - begun


@contextmanager
def started(frame: DataFrame, checkpoint: Path, **trigger: Any) -> Iterator[StreamingQuery]:
    counted = frame.groupBy().count().writeStream.format("noop").outputMode("complete")
    query = counted.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()
    try:
        yield query
    finally:
        query.stop()


def stream_s(spark: SparkSession, node: Node, rows: int, format_name: str) -> float:
    """The time of the micro-batches that read everything, an equal part each."""
    per_batch = str(max(1, rows // BATCHES_OF_STREAM))
    frame = source(spark.readStream, format_name, node, "rows", maxOffsetsPerTrigger=per_batch)
    with (
        tempfile.TemporaryDirectory() as folder,
        started(frame, Path(folder), availableNow=True) as query,
    ):
        query.awaitTermination()
        progress = query.recentProgress
    assert sum(p["numInputRows"] for p in progress) == rows, "rows are missing"
    took_ms: int = sum(p["durationMs"]["triggerExecution"] for p in progress)
    return took_ms / 1000


def small_batch_s(frame: DataFrame, feed: Callable[[], Any]) -> float:
    """The median time of micro-batches with next to nothing in them."""
    with (
        tempfile.TemporaryDirectory() as folder,
        started(frame, Path(folder), processingTime="0 seconds") as query,
    ):
        times: dict[int, float] = {}
        while len(times) < SMALL_BATCHES:
            feed()
            time.sleep(0.05)
            if query.exception() is not None:
                raise RuntimeError(str(query.exception()))
            for p in query.recentProgress:
                if p["numInputRows"] and p["batchId"] > 2:  # the first ones warm up
                    times[p["batchId"]] = p["durationMs"]["triggerExecution"] / 1000
    return statistics.median(times.values())


def reading(rows: int, runs: int) -> list[dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder, Node(Path(folder)) as node:
        make_topic(node, "rows", PARTITIONS)
        rows = fill(node, "rows", partitions=PARTITIONS, rows=rows)
        spark = session()
        try:
            return _measure(spark, node, rows, runs)
        finally:
            spark.stop()


def _measure(spark: SparkSession, node: Node, rows: int, runs: int) -> list[dict[str, float]]:
    parts = []
    for label, run in (("batch", batch_s), ("stream", stream_s)):
        by_format = {name: partial(run, spark, node, rows, name) for name in formats()}
        parts.append(in_turns(label, rows, runs, by_format))
    rate = spark.readStream.format("rate").option("rowsPerSecond", "100").load()
    empty_s = small_batch_s(rate, lambda: None)
    once: dict[str, float] = {"rows": rows}
    for name in formats():
        make_topic(node, f"few-{name}", 1)
        few = source(spark.readStream, name, node, f"few-{name}")
        feed = partial(fill, node, f"few-{name}", partitions=1, rows=1)
        once[f"overhead_{name}_s"] = small_batch_s(few, feed) - empty_s
    return [*together(*parts), {**once, "python_worker_mb_max": worker_mb_max()}]
