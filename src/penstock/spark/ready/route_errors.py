"""Sorts a topic: good records go to one topic, bad ones to a dead-letter topic with the reason.

Bad is what cannot be decoded, and what `check` is not true for (null is not true). Both are passed
on as they are, with key, value, headers and timestamp; the headers of a dead letter also say the
reason, where the record was and how often it has failed (penstock.dead.*). Good and bad rows are
written by one query in the same transactions, so a record is in one of the two topics, once. The
pipeline redrive sends dead letters back.

A record without a value is decoded as null: it is good, unless `check` is not true for it. A check
that raises an error fails the query: use the functions of SQL that give null instead (try_divide).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from penstock.spark.formats import decode_checked, infer_topic
from penstock.spark.formats.dead_letters import letter_headers
from penstock.spark.pipeline.roles import Role


def pipeline(
    spark: SparkSession,
    *,
    topic: Annotated[str, "topic to read", Role.SOURCE_TOPIC],
    to: Annotated[str, "topic for good records", Role.TARGET_TOPIC],
    dead: Annotated[str, "topic for dead letters", Role.TARGET_TOPIC],
    checkpoint: Annotated[str, "folder of the query's progress"],
    check: Annotated[str | None, "what good records fulfil, in SQL: value.price > 0"] = None,
    value_format: Annotated[
        str, "raw, string, json, avro, avro-confluent", Role.INFERRED_FORMAT
    ] = "json",
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
    )
    known = value_schema or (infer_topic(spark, topic, **kafka) if value_format == "json" else None)
    rows = rows.withColumn("checked", decode_checked("value", value_format, known))
    rows = rows.withColumns({"bytes": sf.col("value"), "value": sf.col("checked.value")})
    undecoded = sf.concat(sf.lit(f"cannot be decoded as {value_format}: it "), "checked.error")
    reason = sf.when(sf.col("checked.error").isNotNull(), undecoded)
    if check is not None:
        is_true = sf.coalesce(sf.expr(check).cast("boolean"), sf.lit(False))
        reason = reason.when(~is_true, sf.lit(f"is not {check}"))
    rows = rows.withColumn("reason", reason)
    is_bad = sf.col("reason").isNotNull()
    (
        rows.select(
            sf.when(is_bad, sf.lit(dead)).otherwise(sf.lit(to)).alias("topic"),
            "key",
            sf.col("bytes").alias("value"),
            sf.when(is_bad, letter_headers(sf.col("reason")))
            .otherwise(sf.col("headers"))
            .alias("headers"),
            *(["timestamp"] if keep_timestamps else []),
        )
        .writeStream.format("penstock")
        .options(**kafka)
        .option("checkpointLocation", checkpoint)
        .queryName(f"route {topic} to {to} and {dead}")
        .trigger(**({"availableNow": True} if once else {"processingTime": trigger}))
        .start()
    )
