"""Dead letters: messages that could not be used, with the reason in their headers.

A letter has the key, the value, the timestamp and the headers of the message, and after them
`penstock.dead.reason`, `.topic`, `.partition`, `.offset`, `.timestamp` (milliseconds) and
`.attempts` (how often the message has become a letter), all as text. When it is sent back, only
`.attempts` stays. The sending is noted in the letters' own topic, in the partition of the letter
and in the same transaction: a record with the header `penstock.dead.redriven`, the letter's
offset. A note is younger than its letter and so outlives it.

Invariant: a letter with a note is never sent again. `Letters.version` rises with every note that is
written and never falls, so two runs that have seen the same notes have the same version, and the
sink lets one of them through.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.spark.cluster import Cluster
from penstock.spark.headers import header, headers_without, made_headers
from penstock.spark.options import source_options

PREFIX: Final = "penstock.dead."
ATTEMPTS: Final = "attempts"
REDRIVEN: Final = "redriven"
APPEAR_S_MAX: Final = 20.0
APPEAR_PAUSE_S: Final = 0.05


class Letters(NamedTuple):
    """The letters of a topic that were not sent back yet. Beside the columns of the source they
    have reason, source (their topic) and attempts.
    """

    rows: DataFrame
    version: int


def letter_headers(reason: Column) -> Column:
    """The headers of a letter, from a row of the source with its headers."""
    said = {
        "reason": reason,
        "topic": sf.col("topic"),
        "partition": sf.col("partition"),
        "offset": sf.col("offset"),
        "timestamp": sf.unix_millis("timestamp"),
        ATTEMPTS: sf.coalesce(_said(ATTEMPTS).try_cast("int"), sf.lit(0)) + 1,
    }
    return sf.concat(headers_without(PREFIX), made_headers(PREFIX, said))


def read_letters(spark: SparkSession, topic: str, kafka: dict[str, str]) -> Letters:
    """The letters that wait in a topic."""
    options = {**kafka, "subscribe": topic, "isolation.level": "read_committed"}
    cluster = Cluster(source_options(options))
    _let_notes_appear(cluster, Cluster(source_options({**kafka, "subscribe": topic})))
    rows = spark.read.format("penstock").options(**options, includeHeaders="true").load()
    notes = rows.where(_said(REDRIVEN).isNotNull())
    ends = notes.groupBy("partition").agg(sf.max("offset").alias("last")).collect()
    # From here on the notes that are read may be more than those the version tells of, never less.
    noted = {(topic, row["partition"]): row["last"] + 1 for row in ends}
    begins = cluster.earliest(cluster.partitions())
    version = sum(max(begin, noted.get(place, 0)) for place, begin in begins.items())
    done = notes.select("partition", _said(REDRIVEN).try_cast("long").alias("offset"))
    waiting = rows.select(
        "*",
        _said("reason").alias("reason"),
        _said("topic").alias("source"),
        sf.coalesce(_said(ATTEMPTS).try_cast("int"), sf.lit(1)).alias("attempts"),
    )
    waiting = waiting.where(_said(REDRIVEN).isNull() & sf.col("reason").isNotNull())
    return Letters(waiting.join(done, ["partition", "offset"], "left_anti"), version)


def _let_notes_appear(committed: Cluster, everything: Cluster) -> None:
    """Waits until what was written before can be seen: a commit is answered a moment before that.
    What stays open longer is left to the sink, which ends it or refuses to go on.
    """
    ends = everything.latest(everything.partitions())
    deadline = time.monotonic() + APPEAR_S_MAX
    while time.monotonic() < deadline:
        seen = committed.latest(ends)
        if all(seen[place] >= end for place, end in ends.items()):
            return
        time.sleep(APPEAR_PAUSE_S)


def sent_back(
    letters: DataFrame, topic: str, to: str | None, *, keep_timestamps: bool = True
) -> DataFrame:
    """For each letter of `topic` the message as it was, and the note that it was sent. A letter
    that does not say where it came from stays, unless `to` says where it goes.
    """
    target = sf.lit(to) if to is not None else sf.col("source")
    headers = sf.concat(
        headers_without(PREFIX), made_headers(PREFIX, {ATTEMPTS: sf.col("attempts")})
    )
    note = made_headers(PREFIX, {REDRIVEN: sf.col("offset")})
    nothing = sf.lit(None).cast("binary")
    now = sf.lit(None).cast("timestamp")
    had = sf.coalesce(sf.timestamp_millis(_said("timestamp").try_cast("long")), "timestamp")
    rows = sf.array(
        _row(
            target,
            sf.col("key"),
            sf.col("value"),
            headers,
            sf.lit(None).cast("int"),
            had if keep_timestamps else now,
        ),
        _row(sf.lit(topic), nothing, nothing, note, sf.col("partition"), now),
    )
    known = letters.where(target.isNotNull())
    return known.select(sf.explode(rows).alias("row")).select("row.*")


def _row(
    topic: Column,
    key: Column,
    value: Column,
    headers: Column,
    partition: Column,
    timestamp: Column,
) -> Column:
    return sf.struct(
        topic.alias("topic"),
        key.alias("key"),
        value.alias("value"),
        headers.alias("headers"),
        partition.alias("partition"),
        timestamp.alias("timestamp"),
    )


def _said(name: str) -> Column:
    """What a letter or a note says of it; null where it says nothing."""
    return header(PREFIX + name)
