"""Sends dead letters back to the topics that they came from.

Takes the letters of a dead-letter topic that were not sent back yet, oldest first: all, or those
of a time, with a reason, up to a number. Each is written with the key, value, headers and timestamp
that the message had; of the headers about its death only the number of attempts stays. In the same
transaction a note of each is left in the dead-letter topic, so that the same command, given again,
sends nothing twice, and one that died is simply repeated. All is one transaction of one task: use
`limit` for millions. Times are those of the letters, in UTC unless they say otherwise.
"""

from __future__ import annotations

from typing import Annotated

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from penstock.spark.formats.dead_letters import read_letters, sent_back
from penstock.spark.lake.rows import Times
from penstock.spark.pipeline.roles import Role


def pipeline(
    spark: SparkSession,
    *,
    dead: Annotated[str, "topic of dead letters", Role.SOURCE_TOPIC],
    to: Annotated[
        str | None, "topic to send them to; else where each came from", Role.TARGET_TOPIC
    ] = None,
    since: Annotated[
        str | None, "only letters from this time on, as 2026-11-16T05:00", Role.TIME
    ] = None,
    until: Annotated[str | None, "only letters before this time", Role.TIME] = None,
    reason: Annotated[str | None, "only letters whose reason contains this"] = None,
    attempts: Annotated[int | None, "only letters that failed at most this often"] = None,
    limit: Annotated[int | None, "at most so many letters"] = None,
    keep_timestamps: Annotated[bool, "write each record with the time that it had"] = True,
    **kafka: str,
) -> None:
    times = Times.parse(since, until)
    letters, version = read_letters(spark, dead, kafka)
    letters = times.of_rows(letters)
    if reason is not None:
        letters = letters.where(sf.col("reason").contains(reason))
    if attempts is not None:
        letters = letters.where(sf.col("attempts") <= attempts)
    age = ["timestamp", "partition", "offset"]
    if limit is not None:
        letters = letters.orderBy(*age).limit(limit)
    rows = letters.repartition(1).sortWithinPartitions(*age)
    (
        sent_back(rows, dead, to, keep_timestamps=keep_timestamps)
        .write.format("penstock")
        .options(**kafka)
        .option("txnAppId", f"redrive-{dead}")
        .option("txnVersion", str(version))
        .mode("append")
        .save()
    )
