"""The two sides of an audit: what is read of topics and archives, and within which offsets.

A topic and its archive are compared where both should have rows: from the topic's first offset,
since archives begin there, to the archive's last. What lies outside is told in notes, so that an
archive that is behind a running topic is no false alarm.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import reduce
from operator import or_

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.spark.cluster import Cluster
from penstock.spark.errors import SparkError
from penstock.spark.lake.audit import Comparison, Side
from penstock.spark.lake.rows import RECORD, Times, read
from penstock.spark.lake.table import Span, State, open_table
from penstock.spark.offsets import Offsets, Partition, to_json
from penstock.spark.options import source_options

COMMITTED = {"isolation.level": "read_committed"}


def topic_and_archive(
    spark: SparkSession,
    topic: str,
    folder: str,
    times: Times,
    kafka: Mapping[str, str],
    catalog: str | None = None,
) -> tuple[Comparison, list[str]]:
    """A topic and what an archive has of it, with what has to be said about their ends."""
    table = open_table(folder, catalog=catalog)
    version = table.load()
    if topic not in version.state.spans:
        held = ", ".join(sorted(version.state.spans)) or "nothing"
        raise SparkError(
            f"the archive in {folder} has no row of topic {topic}: it has {held}. Correct the"
            " setting topic or archive"
        )
    cluster = Cluster(source_options({**kafka, "subscribe": topic, **COMMITTED}))
    there = cluster.partitions()
    first, last = cluster.earliest(there), cluster.latest(there)
    ranges, notes = _shared(version.state, first, last)
    rows = read(spark, table, version, times)
    right = Side(f"archive {folder}", _within(rows, version.state, topic, ranges))
    left = Side(f"topic {topic}", _topic(spark, topic, kafka, ranges))
    return Comparison(left, right, by_offset=True, times=times), notes


def _shared(state: State, first: Offsets, last: Offsets) -> tuple[dict[Partition, Span], list[str]]:
    """The offsets of each partition that both sides should have."""
    ranges, notes = {}, []
    for place, start in sorted(first.items()):
        topic, partition = place
        end, held = last[place], state.span(place)
        if held is None:
            ranges[place] = Span(start, start)
            if end > start:
                notes.append(f"partition {partition}: {end - start} offsets are not archived yet")
            continue
        stop = min(held.end, end)
        ranges[place] = Span(min(start, stop), stop)
        if start > held.first:
            notes.append(f"partition {partition}: the topic begins at {start}, the archive before")
        if start < held.first:
            notes.append(f"partition {partition}: the archive begins at {held.first}")
        if end > held.end:
            notes.append(f"partition {partition}: {end - held.end} offsets are not archived yet")
        if end < held.end:
            notes.append(
                f"partition {partition}: topic {topic} ends at {end}, before the archive's"
                f" {held.end}: is it the topic that was archived?"
            )
    return ranges, notes


def _within(
    rows: DataFrame, state: State, topic: str, ranges: Mapping[Partition, Span]
) -> DataFrame:
    """The archive's rows from where the topic begins; those after its end stay, as differences."""
    offset, partition = sf.col("offset"), sf.col("partition")
    held = [int(p) for p in state.spans[topic]]
    firsts = {p: ranges[topic, p].first if (topic, p) in ranges else 0 for p in held}
    places = [(partition == p) & (offset >= first) for p, first in sorted(firsts.items())]
    return rows.where((sf.col("topic") == topic) & reduce(or_, places)).select(*RECORD)


def _topic(
    spark: SparkSession, topic: str, kafka: Mapping[str, str], ranges: Mapping[Partition, Span]
) -> DataFrame:
    """The rows of a topic between offsets."""
    bounds = {
        "startingOffsets": json.dumps(to_json({p: span.first for p, span in ranges.items()})),
        "endingOffsets": json.dumps(to_json({p: span.end for p, span in ranges.items()})),
    }
    asked = {**kafka, **COMMITTED, "includeHeaders": "true", "subscribe": topic, **bounds}
    return spark.read.format("penstock").options(**asked).load().select(*RECORD)


def two_topics(
    spark: SparkSession,
    topic: str,
    copy: str,
    times: Times,
    kafka: Mapping[str, str],
    *,
    by_partition: bool,
    by_hour: bool,
) -> tuple[Comparison, list[str]]:
    """A topic and its copy, each as it is now."""
    sides, counts = [], []
    for name in (topic, copy):
        cluster = Cluster(source_options({**kafka, "subscribe": name, **COMMITTED}))
        there = cluster.partitions()
        first, last = cluster.earliest(there), cluster.latest(there)
        ranges = {place: Span(first[place], last[place]) for place in there}
        sides.append(Side(f"topic {name}", _topic(spark, name, kafka, ranges)))
        counts.append(len(there))
    notes = []
    if counts[0] != counts[1]:
        by_partition = False
        notes.append(
            f"topic {topic} has {counts[0]} partitions and {copy} {counts[1]}: all partitions are"
            " compared together"
        )
    left, right = sides
    return Comparison(left, right, False, by_partition, by_hour, times), notes
