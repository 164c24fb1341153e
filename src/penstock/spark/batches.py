"""Micro-batches that a function writes (`foreachBatch`), each of them once.

Spark's own way to write a stream hands the sink the query and the batch. A function has to say
them: the query's id is in its checkpoint, where it stays over restarts, and the batch's number is
given. Needed where a stream cannot go to the sink itself: output mode update, which Spark does not
offer to sinks in Python, and a table that is read anew for each batch.

Invariant: a batch that Spark repeats is written once, as long as it has the same rows again
(docs/adr/0015-spark-sink.md). Runs in the driver.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession


def write_each_once(
    checkpoint: str,
    options: dict[str, str],
    prepare: Callable[[DataFrame], DataFrame] = lambda batch: batch,
) -> Callable[[DataFrame, int], None]:
    """For `foreachBatch`: writes what `prepare` makes of a batch with the sink's options."""
    known: dict[str, str] = {}

    def write(batch: DataFrame, number: int) -> None:
        if not known:
            known["id"] = query_id(batch.sparkSession, checkpoint)
        (
            prepare(batch)
            .write.format("penstock")
            .options(**options)
            .options(txnAppId=known["id"], txnVersion=str(number))
            .mode("append")
            .save()
        )

    return write


def query_id(spark: SparkSession, checkpoint: str) -> str:
    """The id of the query whose checkpoint this is, from any file system that Spark reads."""
    row = spark.read.text(f"{checkpoint.rstrip('/')}/metadata").head()
    return str(json.loads(row[0])["id"]) if row is not None else ""
