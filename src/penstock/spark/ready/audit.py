"""Proves that nothing is missing or doubled between a topic and its archive, or its copy.

Rows are counted and checked by partition and hour; the exit code is 0 if all of them are equal, and
else 1 with the first places that differ. An archive is compared up to its last offset, so that a
running topic is no false alarm. Two topics are compared as they are now: let the copy come to its
end before, or say `until`.

A copy whose records have times of their own, as by `no-keep-timestamps`, is compared with
`no-by-hour`, and one whose records were shared out anew with `no-by-partition`. Replayed records
count for the hour they had.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pyspark.sql import SparkSession

from penstock.spark.lake.report import show, write_page
from penstock.spark.lake.rows import Times
from penstock.spark.lake.sides import topic_and_archive, two_topics
from penstock.spark.pipeline.roles import Role

EXACTLY_ONE_OF = ("archive", "copy")


def pipeline(
    spark: SparkSession,
    *,
    topic: Annotated[str, "topic to audit", Role.SOURCE_TOPIC],
    archive: Annotated[
        str | None, "folder of the table to compare it with", Role.SOURCE_TABLE
    ] = None,
    catalog: Annotated[
        str | None,
        "Iceberg catalog: address or name; tables are then NAMESPACE.TABLE",
        Role.CATALOG,
    ] = None,
    copy: Annotated[str | None, "topic to compare it with", Role.SOURCE_TOPIC] = None,
    since: Annotated[str | None, "first record time, as 2026-11-16T05:00", Role.TIME] = None,
    until: Annotated[str | None, "record time to stop before", Role.TIME] = None,
    by_partition: Annotated[bool, "of a copy: compare partition by partition"] = True,
    by_hour: Annotated[bool, "of a copy: compare hour by hour"] = True,
    report: Annotated[str | None, "HTML file to write, with a plot"] = None,
    print_as: Annotated[Literal["text", "json"], "how to print the result"] = "text",
    **kafka: str,
) -> int:
    times = Times.parse(since, until)
    if archive is not None:
        comparison, notes = topic_and_archive(spark, topic, archive, times, kafka, catalog)
    else:
        comparison, notes = two_topics(
            spark, topic, copy or "", times, kafka, by_partition=by_partition, by_hour=by_hour
        )
    found = comparison.run(notes)
    show(found, print_as)
    if report is not None:
        write_page(found, report)
    return 0 if found.equal else 1
