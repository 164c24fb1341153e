"""Rows of a table back to a topic, in steps, each written once.

A step takes up to `rows_per_step` offsets of every source partition, the steps of a partition one
after the other, so that its order is kept and no transaction grows without bound. Steps are the
batches of the sink's idempotence: their application is the replay (a digest of all that was
asked for), their version the step's number. A repeated replay finds the last step that
was committed in the sink's markers and goes on from it; what that step has written is left out.

Limits: a repetition must find the same rows, so the range should be over and archived. The
markers live as long as the broker keeps the offsets of an idle group.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from penstock.spark.errors import OptionError
from penstock.spark.lake.origin import headers_with_origin
from penstock.spark.lake.rows import ORDER
from penstock.spark.lake.table import Span
from penstock.spark.offsets import Partition
from penstock.spark.sink import sink_options
from penstock.spark.transactions import begin, read_marker
from penstock.spark.writer import connect

TASKS_MAX: Final = 64
"""Tasks that write at the same time, and so transactions that are open at the same time."""


def listed(text: str | None) -> list[str]:
    """The parts of a setting that are separated by commas."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def chosen(
    rows: DataFrame, topics: Sequence[str], partitions: Sequence[str], keys: Sequence[str]
) -> DataFrame:
    """The rows of topics, partitions and keys; an empty list leaves all of them in."""
    if topics:
        rows = rows.where(sf.col("topic").isin(list(topics)))
    if partitions:
        if not all(p.isdecimal() for p in partitions):
            raise OptionError(f"partitions must be numbers as 0,1,2, not {','.join(partitions)!r}")
        rows = rows.where(sf.col("partition").isin([int(p) for p in partitions]))
    if keys:
        rows = rows.where(sf.col("key").isin([sf.lit(key.encode()) for key in keys]))
    return rows


@dataclass(frozen=True)
class Replay:
    """A replay that can be repeated; `asked` is all that tells it from others."""

    rows: DataFrame
    to: str
    asked: Sequence[Any]
    rows_per_step: int
    keep_partitions: bool
    keep_timestamps: bool
    kafka: Mapping[str, str]

    def run(self) -> int:
        """How many steps were taken; one that was committed before is taken once more and writes
        nothing.
        """
        if self.rows_per_step < 1:
            raise OptionError(f"rows_per_step must be 1 or more, not {self.rows_per_step}")
        spans = self._spans()
        steps = max((self._steps(span) for span in spans.values()), default=0)
        tasks = min(len(spans), TASKS_MAX)
        first = self._committed(tasks)
        for step in range(first, steps):
            self._write(self._rows_of(spans, step), step, tasks)
        return max(steps - first, 0)

    @property
    def _app(self) -> str:
        asked = [*self.asked, self.to, self.rows_per_step]
        text = json.dumps([*asked, self.keep_partitions, self.keep_timestamps])
        return f"replay-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def _spans(self) -> dict[Partition, Span]:
        found = self.rows.groupBy("topic", "partition").agg(
            sf.min("offset").alias("first"), sf.max("offset").alias("last")
        )
        return {
            (row["topic"], row["partition"]): Span(row["first"], row["last"] + 1)
            for row in found.collect()
        }

    def _steps(self, span: Span) -> int:
        return -(-(span.end - span.first) // self.rows_per_step)

    def _rows_of(self, spans: Mapping[Partition, Span], step: int) -> DataFrame:
        """The rows of a step, by a condition that Parquet's statistics can be held against."""
        places = []
        for (topic, partition), span in sorted(spans.items()):
            first = span.first + step * self.rows_per_step
            offset = sf.col("offset")
            place: Column = (sf.col("topic") == topic) & (sf.col("partition") == partition)
            places.append(place & (offset >= first) & (offset < first + self.rows_per_step))
        return self.rows.where(reduce(or_, places))

    def _committed(self, tasks: int) -> int:
        """The last step that any task has committed; all before it are whole. What a replay that
        died has left open is ended first: a marker cannot be read while another one is pending.
        """
        options = sink_options({**self.kafka, "topic": self.to})
        names = [options.transactional_id(self._app, task) for task in range(tasks)]
        with connect(options) as brokers:
            for name in names:
                begin(brokers, name, options.transaction_timeout_ms)
            markers = [read_marker(brokers, name) for name in names]
        return max((marker.batch_id for marker in markers if marker is not None), default=0)

    def _write(self, rows: DataFrame, step: int, tasks: int) -> None:
        columns = [sf.col("key"), sf.col("value"), headers_with_origin().alias("headers")]
        if self.keep_partitions:
            columns.append(sf.col("partition"))
        if self.keep_timestamps:
            columns.append(sf.col("timestamp"))
        (
            rows.repartition(tasks, "topic", "partition")
            .sortWithinPartitions(*ORDER)
            .select(*columns)
            .write.format("penstock")
            .mode("append")
            .options(**self.kafka)
            .option("topic", self.to)
            .option("txnAppId", self._app)
            .option("txnVersion", step)
            .save()
        )
