"""Counts and sums by key in windows of time, to a topic, a table, or both.

The topic gets a row for each window and key whenever they change; its key is the window's start and
the key, so that the last row of a key stands (a compacted topic keeps just that). With `final` it
gets one row for each, when the window is over. Its timestamp is that of the youngest record. The
table, Parquet, always gets the final rows.

A window is over when a record comes that is `late` younger than its end. Records that come after
that are left out (Spark counts them: numRowsDroppedByWatermark), and so are records without a time.
Records without a key are a group of their own. Sums leave nulls out, the count does not. A record
that cannot be decoded fails the query: the pipeline route-errors sorts such out beforehand.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.spark.batches import write_each_once
from penstock.spark.formats import decode_rows, encode, infer_topic
from penstock.spark.pipeline.roles import Role

AT_LEAST_ONE_OF = ("to", "table")


def pipeline(
    spark: SparkSession,
    *,
    topic: Annotated[str, "topic to read", Role.SOURCE_TOPIC],
    checkpoint: Annotated[str, "folder of the query's progress and state"],
    to: Annotated[str | None, "topic to write to", Role.TARGET_TOPIC] = None,
    table: Annotated[str | None, "folder of the table to write to", Role.TARGET_FOLDER] = None,
    by: Annotated[str, "columns of the key, in SQL"] = "string(key) as key",
    sums: Annotated[str, "columns to add up, in SQL"] = "",
    time: Annotated[str, "when a record happened, in SQL"] = "timestamp",
    window: Annotated[str, "length of a window"] = "1 minute",
    slide: Annotated[str | None, "a new window begins this often; else when one is over"] = None,
    late: Annotated[str, "how late records may come"] = "1 minute",
    final: Annotated[bool, "write only windows that are over, once each"] = False,
    value_format: Annotated[
        str, "raw, string, json, avro, avro-confluent", Role.INFERRED_FORMAT
    ] = "json",
    value_schema: Annotated[
        str | None, "schema of the values; that of JSON can be inferred"
    ] = None,
    start: Annotated[Literal["earliest", "latest"], "where a new query begins"] = "earliest",
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
        .load()
    )
    known = value_schema or (infer_topic(spark, topic, **kafka) if value_format == "json" else None)
    rows = decode_rows(rows, value_format, known)
    windows = totals(rows, by, sums, time, window, slide, late)
    when = {"availableNow": True} if once else {"processingTime": trigger}
    if to is not None:
        messages = windows.select(
            encode(sf.struct("start", "by.*"), "json").alias("key"),
            encode(sf.struct("start", "end", "by.*", "count", "sums.*"), "json").alias("value"),
            "timestamp",
        )
        writer = messages.writeStream.queryName(f"aggregate {topic} to {to}").trigger(**when)
        writer = writer.option("checkpointLocation", f"{checkpoint}/topic")
        if final:
            writer.format("penstock").options(**kafka).option("topic", to).start()
        else:
            each = write_each_once({**kafka, "topic": to})
            writer.outputMode("update").foreachBatch(each).start()
    if table is not None:
        writer = windows.select("start", "end", "by.*", "count", "sums.*").writeStream
        writer = writer.queryName(f"aggregate {topic} to table").trigger(**when)
        writer = writer.option("checkpointLocation", f"{checkpoint}/table")
        writer.format("parquet").option("path", table).start()


def totals(
    rows: DataFrame, by: str, sums: str, time: str, window: str, slide: str | None, late: str
) -> DataFrame:
    """A row for each window and key: start, end, by, count, sums, and the youngest timestamp."""
    picked = rows.select(
        sf.expr(time).cast("timestamp").alias("at"),
        sf.expr(f"struct({by})").alias("by"),
        sf.expr(f"struct({sums})").alias("sums"),
        "timestamp",
    )
    names = picked.select("sums.*").columns if sums else []
    added = [sf.sum(f"sums.{name}").alias(f"sum_{name}") for name in names]
    return (
        picked.withWatermark("at", late)
        .groupBy(sf.window("at", window, slide), "by")
        .agg(
            sf.count("*").alias("count"),
            sf.struct(*added).alias("sums"),
            sf.max("timestamp").alias("timestamp"),
        )
        .select("window.start", "window.end", "by", "count", "sums", "timestamp")
    )
