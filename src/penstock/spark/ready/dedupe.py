"""A topic without its duplicates, to another topic.

Records are the same if the columns `by` are, or without it their values. The first one within the
time `within` is passed on as it is, with key, value, headers and timestamp. Records with a null
among the columns (or without a value) are never duplicates. A record without a time has that of its
arrival.

A record that is older than all that came by more than `within` is left out: whether it is a
duplicate is not known any more (Spark counts them: numRowsDroppedByWatermark). Records are passed
on in order only among those that are the same.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Annotated, Literal

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from penstock.spark.formats import decode_rows, infer_topic
from penstock.spark.pipeline.roles import Role


def pipeline(
    spark: SparkSession,
    *,
    topic: Annotated[str, "topic to read", Role.SOURCE_TOPIC],
    to: Annotated[str, "topic to write to", Role.TARGET_TOPIC],
    checkpoint: Annotated[str, "folder of the query's progress and state"],
    by: Annotated[str | None, "columns that duplicates share, in SQL; else the value"] = None,
    within: Annotated[str, "how long a record is remembered"] = "1 hour",
    time: Annotated[str, "when a record happened, in SQL"] = "timestamp",
    value_format: Annotated[
        str, "raw, string, json, avro, avro-confluent", Role.INFERRED_FORMAT
    ] = "raw",
    value_schema: Annotated[
        str | None, "schema of the values; that of JSON can be inferred"
    ] = None,
    start: Annotated[Literal["earliest", "latest"], "where a new query begins"] = "earliest",
    keep_timestamps: Annotated[bool, "write each record with the time that it had"] = True,
    once: Annotated[bool, "stop when all that is there now is done"] = False,
    trigger: Annotated[str, "time between micro-batches"] = "1 second",
    **kafka: str,
) -> None:
    rows = (
        spark.readStream.format("penstock")
        .options(**kafka)
        .option("subscribe", topic)
        .option("startingOffsets", start)
        .option("isolation.level", "read_committed")
        .option("includeHeaders", "true")
        .load()
        .withColumn("bytes", sf.col("value"))
    )
    known = value_schema or (infer_topic(spark, topic, **kafka) if value_format == "json" else None)
    rows = decode_rows(rows, value_format, known)
    same = f"struct({by})" if by else "struct(sha2(bytes, 256) as value)"
    rows = rows.select(
        "key",
        sf.col("bytes").alias("value"),
        "headers",
        "timestamp",
        sf.coalesce(sf.expr(time).cast("timestamp"), "timestamp").alias("at"),
        sf.expr(same).alias("same"),
        sf.concat_ws("-", "topic", "partition", "offset").alias("place"),
    )
    lacks = [sf.col(f"same.{name}").isNull() for name in rows.select("same.*").columns]
    alone = sf.when(reduce(or_, lacks), sf.col("place"))
    (
        rows.withColumn("alone", alone)
        .withWatermark("at", within)
        .dropDuplicatesWithinWatermark(["same", "alone"])
        .select("key", "value", "headers", *(["timestamp"] if keep_timestamps else []))
        .writeStream.format("penstock")
        .options(**kafka)
        .option("topic", to)
        .option("checkpointLocation", checkpoint)
        .queryName(f"dedupe {topic} to {to}")
        .trigger(**({"availableNow": True} if once else {"processingTime": trigger}))
        .start()
    )
