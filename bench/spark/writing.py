"""Measures the sink on Spark with two threads, against one node:
`python -m bench.spark.writing [--rows N] [--json]`.

Rows of 100 B that Spark makes are written to a topic, exactly once without and with keys (which are
hashed to partitions), and at least once; the first run of each warms up and does not count. What is
left when nothing is written ("made") is Spark's own share. Processor time is that of all processes
together, as in `reading`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.spark.node import Node, make_topic
from bench.spark.reading import PARTITIONS, RUNS, SETTINGS, cpu_s, worker_mb_max

from penstock.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GOALS = {"exactly_once_rows_s": 300_000, "keyed_rows_s": 300_000, "at_least_once_rows_s": 300_000}
TASKS = 2
VALUE = "lpad(cast(id as string), 100, 'x') value"


def write_s(frame: DataFrame, format_name: str, options: dict[str, str]) -> float:
    begun = time.perf_counter()
    frame.write.format(format_name).mode("append").options(**options).save()
    return time.perf_counter() - begun


def measure(spark: SparkSession, node: Node, rows: int) -> dict[str, float]:
    plain = spark.range(0, rows, 1, TASKS).selectExpr(VALUE)
    keyed = spark.range(0, rows, 1, TASKS).selectExpr("cast(id as string) key", VALUE)
    topic = {"kafka.bootstrap.servers": node.bootstrap, "topic": "rows"}
    found: dict[str, float] = {"rows": rows}
    for name, frame, format_name, options in (
        ("made", plain, "noop", {}),
        ("exactly_once", plain, "penstock", topic),
        ("keyed", keyed, "penstock", topic),
        ("at_least_once", plain, "penstock", topic | {"delivery": "at-least-once"}),
    ):
        write_s(frame, format_name, options)
        before = cpu_s()
        times = [write_s(frame, format_name, options) for _ in range(RUNS)]
        found[f"{name}_rows_s"] = rows / statistics.median(times)
        found[f"{name}_cpu_us_per_row"] = (cpu_s() - before) / RUNS / rows * 1e6
    found["python_worker_mb_max"] = worker_mb_max()
    found["load_average"] = os.getloadavg()[0]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Node(Path(folder)) as node:
        make_topic(node, "rows", PARTITIONS)
        spark = start_session("penstock-bench", "local[2]", SETTINGS)
        try:
            found = measure(spark, node, options.rows)
        finally:
            spark.stop()
    if options.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        goal = f"   (goal {GOALS[name]:,})" if name in GOALS else ""
        print(f"{name:28} {value:14,.3f}{goal}")


if __name__ == "__main__":
    main()
