"""The sink: rows of 100 B that Spark makes, written to a topic.

Exactly once, without and with keys (which are hashed to partitions), and at least once, which is
all that Spark's own connector has. What is left when nothing is written ("made") is Spark's share.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.spark.measuring import (
    OURS,
    PARTITIONS,
    PEER,
    formats,
    in_turns,
    session,
    together,
    worker_mb_max,
)
from bench.spark.node import Node, make_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS = 2
VALUE = "lpad(cast(id as string), 100, 'x') value"
AT_LEAST_ONCE = "at_least_once"


def write_s(frame: DataFrame, format_name: str, options: dict[str, str]) -> float:
    begun = time.perf_counter()
    frame.write.format(format_name).mode("append").options(**options).save()
    return time.perf_counter() - begun


def writing(rows: int, runs: int) -> list[dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder, Node(Path(folder)) as node:
        make_topic(node, "rows", PARTITIONS)
        spark = session()
        try:
            return _measure(spark, node, rows, runs)
        finally:
            spark.stop()


def _measure(spark: SparkSession, node: Node, rows: int, runs: int) -> list[dict[str, float]]:
    topic = {"kafka.bootstrap.servers": node.bootstrap, "topic": "rows"}
    plain = spark.range(0, rows, 1, TASKS).selectExpr(VALUE)
    keyed = spark.range(0, rows, 1, TASKS).selectExpr("cast(id as string) key", VALUE)
    parts = []
    for label, frame in (("write", plain), ("write_keyed", keyed)):
        ways = {
            OURS: partial(write_s, frame, OURS, topic),
            AT_LEAST_ONCE: partial(write_s, frame, OURS, topic | {"delivery": "at-least-once"}),
            "made": partial(write_s, frame, "noop", {}),
        }
        if PEER in formats():
            ways[PEER] = partial(write_s, frame, PEER, topic)
        parts.append(in_turns(label, rows, runs, ways))
    return [*together(*parts), {"rows": rows, "python_worker_mb_max": worker_mb_max()}]
