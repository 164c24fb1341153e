"""Archives of topics for tests: topics with all kinds of records, and runs to their end."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.lake.rows import read
from penstock.spark.lake.table import Table, open_table
from penstock.spark.ready import archive

from .helpers import produce_all, producer
from .process import BrokerProcess
from .spark_flows import run
from .spark_sink import committed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = datetime(2026, 11, 16, 5, 59, 59, tzinfo=UTC)
START_MS = int(START.timestamp() * 1000)

Record = tuple[int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
"""Partition, offset, time in milliseconds, key, value and headers."""


def fill_mixed(node: BrokerProcess, topic: str, count: int, first: int = 0) -> None:
    """Records of two partitions, 250 ms apart, so that an hour ends after a few: with and without
    key, value and headers.
    """
    messages: list[dict[str, Any]] = [
        {
            "partition": n % 2,
            "timestamp": START_MS + 250 * n,
            "key": None if n % 3 == 0 else b"key %d" % n,
            "value": None if n % 5 == 4 else b"value %d \x00\xff" % n,
            "headers": [("a", b"%d" % n), ("a", None), ("ü", b"")] if n % 2 else [],
        }
        for n in range(first, first + count)
    ]
    produce_all(producer(node), topic, messages)


def records_of_topic(node: BrokerProcess, topic: str) -> list[Record]:
    return sorted(
        (
            message.partition() or 0,
            message.offset() or 0,
            message.timestamp()[1],
            message.key(),
            message.value(),
            list(message.headers() or []),
        )
        for message in committed(node, topic)
    )


def records_of_table(spark: SparkSession, folder: Path) -> list[Record]:
    table = open_table(str(folder))
    return records_of_rows(read(spark, table, table.load()))


def records_of_rows(rows: DataFrame) -> list[Record]:
    return sorted(
        (
            row["partition"],
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            None if row["key"] is None else bytes(row["key"]),
            None if row["value"] is None else bytes(row["value"]),
            [(h["key"], h["value"] and bytes(h["value"])) for h in row["headers"] or []],
        )
        for row in rows.collect()
    )


class Archive:
    """One table and checkpoint; each `run` archives all that is there."""

    def __init__(self, spark: SparkSession, node: BrokerProcess, topic: str, folder: Path) -> None:
        self.spark, self.node, self.topic = spark, node, topic
        self.folder, self.checkpoint = folder / "table", folder / "checkpoint"

    def run(self, **settings: Any) -> None:
        settings = {
            "topic": [self.topic],
            "to": str(self.folder),
            "checkpoint": str(self.checkpoint),
            "compact_every": 0,
            **settings,
        }
        run(self.spark, self.node, archive.pipeline, **settings)

    @property
    def table(self) -> Table:
        return open_table(str(self.folder))

    def records(self) -> list[Record]:
        return records_of_table(self.spark, self.folder)
