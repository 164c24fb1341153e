"""Measures the source on Spark with two threads, against one node:
`python -m bench.spark.reading [--rows N] [--json]`.

Rows of 100 B are counted in a batch and in a stream's micro-batches; the first run of each warms up
and does not count. The overhead of a micro-batch is what one with a single new row takes longer
than one of Spark's rate source. Processor time is that of the node, Spark's JVM and its Python
workers together: unlike rows per second it says something on a busy machine, too. Memory is the
largest that any Python worker ever had.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.spark.node import Node, fill, make_topic

from penstock.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

GOALS = {"batch_rows_s": 1_000_000, "stream_rows_s": 800_000}
RUNS = 3
PARTITIONS = 2
IDLE_BATCHES = 15
TICKS_S = os.sysconf("SC_CLK_TCK")
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def processes() -> Iterator[Path]:
    """This process and all below it, in /proc."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended meanwhile
    for pid in parents:
        above = pid
        while above not in (0, os.getpid()):
            above = parents.get(above, 0)
        if above:
            yield Path("/proc", str(pid))


def cpu_s() -> float:
    """Processor time of all of them so far."""
    fields = [(p / "stat").read_text().rpartition(")")[2].split() for p in processes()]
    return sum(int(f[11]) + int(f[12]) for f in fields) / TICKS_S


def worker_mb_max() -> float:
    """The largest resident size that a Python worker of Spark ever had."""
    found = 0.0
    for process in processes():
        if b"-m\0pyspark." in (process / "cmdline").read_bytes():
            status = (process / "status").read_text()
            found = max(found, int(status.partition("VmHWM:")[2].split()[0]) / 1024)
    return found


def source(reader: Any, node: Node, topic: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": node.bootstrap, "subscribe": topic}
    given |= {"startingOffsets": "earliest"} | options
    frame: DataFrame = reader.format("penstock").options(**given).load()
    return frame


def batch_s(spark: SparkSession, node: Node, rows: int) -> float:
    frame = source(spark.read, node, "rows")
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


def stream_s(spark: SparkSession, node: Node, rows: int) -> float:
    """The time of the micro-batches that read everything, a quarter each."""
    per_batch = str(max(1, rows // 4))
    frame = source(spark.readStream, node, "rows", maxOffsetsPerTrigger=per_batch)
    with (
        tempfile.TemporaryDirectory() as folder,
        started(frame, Path(folder), availableNow=True) as query,
    ):
        query.awaitTermination()
        progress = query.recentProgress
    assert sum(p["numInputRows"] for p in progress) == rows, "rows are missing"
    return sum(p["durationMs"]["triggerExecution"] for p in progress) / 1000


def small_batch_s(frame: DataFrame, feed: Callable[[], None]) -> float:
    """The median time of micro-batches with next to nothing in them."""
    with (
        tempfile.TemporaryDirectory() as folder,
        started(frame, Path(folder), processingTime="0 seconds") as query,
    ):
        times: dict[int, float] = {}
        while len(times) < IDLE_BATCHES:
            feed()
            time.sleep(0.05)
            if query.exception() is not None:
                raise RuntimeError(str(query.exception()))
            for p in query.recentProgress:
                if p["numInputRows"] and p["batchId"] > 2:  # the first ones warm up
                    times[p["batchId"]] = p["durationMs"]["triggerExecution"] / 1000
    return statistics.median(times.values())


def measure(spark: SparkSession, node: Node, rows: int) -> dict[str, float]:
    batch_s(spark, node, rows)
    before = cpu_s()
    batches = [batch_s(spark, node, rows) for _ in range(RUNS)]
    batch_cpu_s = (cpu_s() - before) / RUNS
    stream_s(spark, node, rows)
    before = cpu_s()
    streams = [stream_s(spark, node, rows) for _ in range(RUNS)]
    stream_cpu_s = (cpu_s() - before) / RUNS
    make_topic(node, "few", 1)
    ours = small_batch_s(
        source(spark.readStream, node, "few"), lambda: fill(node, "few", partitions=1, rows=1)
    )
    rate = spark.readStream.format("rate").option("rowsPerSecond", "100").load()
    return {
        "rows": rows,
        "batch_rows_s": rows / statistics.median(batches),
        "batch_cpu_us_per_row": batch_cpu_s / rows * 1e6,
        "stream_rows_s": rows / statistics.median(streams),
        "stream_cpu_us_per_row": stream_cpu_s / rows * 1e6,
        "micro_batch_overhead_s": ours - small_batch_s(rate, lambda: None),
        "python_worker_mb_max": worker_mb_max(),
        "load_average": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Node(Path(folder)) as node:
        make_topic(node, "rows", PARTITIONS)
        rows = fill(node, "rows", partitions=PARTITIONS, rows=options.rows)
        spark = start_session("penstock-bench", "local[2]", SETTINGS)
        try:
            found = measure(spark, node, rows)
        finally:
            spark.stop()
    if options.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        goal = f"   (goal {GOALS[name]:,})" if name in GOALS else ""
        print(f"{name:24} {value:14,.3f}{goal}")


if __name__ == "__main__":
    main()
