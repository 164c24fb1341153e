"""A topic joined with another topic or with a table, to a topic.

`on` and `columns` are SQL over the rows `this` (the topic) and `other`. Rows of topics have key,
value (decoded), topic, partition, offset, timestamp and at (their time); those of a table have
value, with the table's columns. What is written is `columns` as JSON, with the key of `this` and
the timestamp of the younger record.

Two topics: records meet whose times are at most `within` apart. A record that is more than `late`
behind the younger ones of its topic may be left out. With `how=left` a record that meets none is
written when none can come any more. A record without a time has that of its arrival.

A table is read when the query starts; with `reread` for each micro-batch, which is written once as
long as the table stays the same between a batch that failed and its repetition. A null equals
nothing, so records without what `on` compares are written only with `how=left`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.spark.batches import write_each_once
from penstock.spark.formats import decode_rows, encode, infer_topic
from penstock.spark.pipeline.roles import Role

EXACTLY_ONE_OF = ("other", "table")


def pipeline(
    spark: SparkSession,
    *,
    topic: Annotated[str, "topic to read", Role.SOURCE_TOPIC],
    to: Annotated[str, "topic to write to", Role.TARGET_TOPIC],
    on: Annotated[str, "which rows meet, in SQL: this.value.id = other.value.id"],
    checkpoint: Annotated[str, "folder of the query's progress and state"],
    other: Annotated[str | None, "topic to join with", Role.SOURCE_TOPIC] = None,
    table: Annotated[str | None, "folder of the table to join with", Role.SOURCE_FOLDER] = None,
    table_format: Annotated[str, "parquet, delta, or another that Spark reads"] = "parquet",
    reread: Annotated[bool, "read the table anew for each micro-batch"] = False,
    how: Annotated[Literal["inner", "left"], "what becomes of records that meet none"] = "inner",
    columns: Annotated[str, "what to write, in SQL"] = "this.value as this, other.value as other",
    within: Annotated[str, "how far apart in time records of two topics may be"] = "10 minutes",
    late: Annotated[str, "how late records may come"] = "10 minutes",
    time: Annotated[str, "when a record of the topic happened, in SQL"] = "timestamp",
    other_time: Annotated[str, "when a record of the other topic happened"] = "timestamp",
    value_format: Annotated[
        str, "raw, string, json, avro, avro-confluent", Role.INFERRED_FORMAT
    ] = "json",
    value_schema: Annotated[
        str | None, "schema of the values; that of JSON can be inferred"
    ] = None,
    other_format: Annotated[
        str | None, "format of the other topic; else the same", Role.INFERRED_FORMAT
    ] = None,
    other_schema: Annotated[str | None, "schema of the other topic's values"] = None,
    start: Annotated[Literal["earliest", "latest"], "where a new query begins"] = "earliest",
    keep_timestamps: Annotated[bool, "write each record with the time that it had"] = True,
    once: Annotated[bool, "stop when all that is there now is done"] = False,
    trigger: Annotated[str, "time between micro-batches"] = "1 second",
    **kafka: str,
) -> None:
    def read(name: str, form: str, schema: str | None, at: str) -> DataFrame:
        rows = (
            spark.readStream.format("penstock")
            .options(**kafka)
            .option("subscribe", name)
            .option("startingOffsets", start)
            .option("isolation.level", "read_committed")
            .load()
        )
        known = schema or (infer_topic(spark, name, **kafka) if form == "json" else None)
        happened = sf.coalesce(sf.expr(at).cast("timestamp"), "timestamp")
        return decode_rows(rows, form, known).withColumn("at", happened)

    def read_table() -> DataFrame:
        return spark.read.format(table_format).load(table).select(sf.struct("*").alias("value"))

    def messages(left: DataFrame, right: DataFrame, condition: str) -> DataFrame:
        met = left.alias("this").join(right.alias("other"), sf.expr(condition), how)
        value = encode(sf.expr(f"struct({columns})"), "json").alias("value")
        at = sf.col("this.timestamp")
        if other is not None:
            at = sf.greatest(at, sf.col("other.timestamp")).alias("timestamp")
        return met.select("this.key", value, *([at] if keep_timestamps else []))

    this = read(topic, value_format, value_schema, time)
    options = {**kafka, "topic": to}
    if other is not None:
        that = read(other, other_format or value_format, other_schema, other_time)
        near = f"other.at between this.at - interval {within} and this.at + interval {within}"
        met = messages(
            this.withWatermark("at", late), that.withWatermark("at", late), f"({on}) and {near}"
        )
        writer = met.writeStream.format("penstock").options(**options)
    elif reread:
        each = write_each_once(options, lambda batch: messages(batch, read_table(), on))
        writer = this.writeStream.foreachBatch(each)
    else:
        met = messages(this, read_table(), on)
        writer = met.writeStream.format("penstock").options(**options)
    writer = writer.queryName(f"join {topic} with {other or table}")
    writer = writer.trigger(**({"availableNow": True} if once else {"processingTime": trigger}))
    writer.option("checkpointLocation", checkpoint).start()
