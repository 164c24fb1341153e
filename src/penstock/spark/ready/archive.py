"""Topics to a table by date and hour, each record once.

The table has the columns topic, partition, offset, timestamp, timestampType, key, value, headers,
date and hour (of the timestamp, in UTC). Its format is parquet, or delta or iceberg with
`pip install 'penstock[spark,lake]'`. With `value_format`, the columns decoded and decode_error come
before date and hour; value stays as it was, so that replay and audit find what the topic had.

Each micro-batch is one commit. A query that is started again goes on where it was; with a new
checkpoint it goes on where the table ends. A checkpoint that is further than its table is refused.
Every `compact_every` batches, small files of hours that got nothing new for `compact_after_s` are
put together.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pyspark.sql import DataFrame, SparkSession

from penstock.spark.lake.append import append_batch
from penstock.spark.lake.compact import Policy, compact
from penstock.spark.lake.progress import check_not_ahead
from penstock.spark.lake.rows import RECORD, with_decoded
from penstock.spark.lake.staging import clear_leftovers
from penstock.spark.lake.start import starting_offsets
from penstock.spark.lake.table import open_table
from penstock.spark.pipeline.roles import Role


def pipeline(
    spark: SparkSession,
    *,
    topic: Annotated[list[str], "topics to archive, separated by commas", Role.SOURCE_TOPIC],
    to: Annotated[str, "folder of the table, or s3://, gs://, abfs://", Role.TARGET_TABLE],
    checkpoint: Annotated[str, "folder of the query's progress"],
    table_format: Annotated[Literal["parquet", "delta", "iceberg"], "of the table"] = "parquet",
    catalog: Annotated[
        str | None,
        "Iceberg catalog: address or name; tables are then NAMESPACE.TABLE",
        Role.CATALOG,
    ] = None,
    value_format: Annotated[
        str | None, "decode values too: string, json, avro", Role.FORMAT
    ] = None,
    value_schema: Annotated[str | None, "schema of the values, for json and avro"] = None,
    once: Annotated[bool, "stop when all that is there now is done"] = False,
    trigger: Annotated[str, "time between micro-batches"] = "1 minute",
    rows_per_batch: Annotated[int, "records that one micro-batch takes at most"] = 5_000_000,
    compact_every: Annotated[int, "micro-batches between compactions; 0 is never"] = 10,
    compact_after_s: Annotated[float, "seconds without new rows after which an hour is over"] = 600,
    compact_files: Annotated[int, "small files that an hour may have"] = 8,
    file_mb: Annotated[int, "size of a compacted file in MiB"] = 128,
    **kafka: str,
) -> None:
    table = open_table(to, table_format, catalog)
    check_not_ahead(spark, table, checkpoint, kafka)
    clear_leftovers(table)
    policy = Policy(compact_after_s, compact_files, file_mb * 2**20)
    rows = (
        spark.readStream.format("penstock")
        .options(**kafka)
        .option("subscribe", ",".join(topic))
        .option("startingOffsets", starting_offsets(table, topic, kafka))
        .option("isolation.level", "read_committed")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", rows_per_batch)
        .load()
        .select(*RECORD)
    )
    rows = with_decoded(rows, value_format, value_schema)

    def write(batch: DataFrame, number: int) -> None:
        append_batch(table, batch, number)
        if compact_every and (number + 1) % compact_every == 0:
            compact(batch.sparkSession, table, policy)

    (
        rows.writeStream.foreachBatch(write)
        .option("checkpointLocation", checkpoint)
        .queryName(f"archive {','.join(topic)} to {to}")
        .trigger(**({"availableNow": True} if once else {"processingTime": trigger}))
        .start()
    )
