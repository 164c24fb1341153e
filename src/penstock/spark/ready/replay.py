"""A time range of an archive back to a topic, each record once.

Key, value, headers and timestamp are those of the archive; the headers penstock.source.topic,
.partition, .offset and .timestamp say where a record comes from. A topic removes records that are
older than its `retention.ms`, so give it a longer one, or write with `no-keep-timestamps`. Records
of one source partition are written in their order, to the partition that they had, or with
`no-keep-partitions` to that of their key.

The same command again writes nothing twice, and one that was interrupted goes on where it was; to
write the records once more on purpose, give another word for `again`.
"""

from __future__ import annotations

from typing import Annotated

from pyspark.sql import SparkSession

from penstock.spark.lake.replay import Replay, chosen, listed
from penstock.spark.lake.rows import Times, read
from penstock.spark.lake.table import open_table
from penstock.spark.pipeline.roles import Role


def pipeline(
    spark: SparkSession,
    *,
    archive: Annotated[str, "folder of the table that archive has written", Role.SOURCE_TABLE],
    to: Annotated[str, "topic to write to", Role.TARGET_TOPIC],
    since: Annotated[
        str, "first record time, as 2026-11-16T05:00; UTC unless it says otherwise", Role.TIME
    ],
    until: Annotated[str, "record time to stop before; it should be over and archived", Role.TIME],
    catalog: Annotated[
        str | None,
        "Iceberg catalog: address or name; tables are then NAMESPACE.TABLE",
        Role.CATALOG,
    ] = None,
    topic: Annotated[str | None, "topics of the archive, separated by commas; else all"] = None,
    partitions: Annotated[str | None, "source partitions, separated by commas; else all"] = None,
    keys: Annotated[str | None, "keys as text, separated by commas; else all"] = None,
    keep_partitions: Annotated[bool, "write each record to the partition that it had"] = True,
    keep_timestamps: Annotated[bool, "write each record with the time that it had"] = True,
    rows_per_step: Annotated[int, "offsets of a source partition in one transaction"] = 1_000_000,
    again: Annotated[str, "a word that tells this replay from the same one before"] = "",
    **kafka: str,
) -> None:
    table = open_table(archive, catalog=catalog)
    rows = read(spark, table, table.load(), Times.parse(since, until))
    rows = chosen(rows, listed(topic), listed(partitions), listed(keys))
    asked = [str(table.folder), since, until, topic, partitions, keys, again]
    Replay(rows, to, asked, rows_per_step, keep_partitions, keep_timestamps, kafka).run()
