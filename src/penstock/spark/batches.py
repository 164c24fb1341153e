"""Micro-batches that a function writes (`foreachBatch`), each of them once.

Spark's own way to write a stream hands the sink the query and the batch. A function is told the
batch's number, and finds the query's id, which is kept in the checkpoint and stays over restarts,
in the local properties of its thread. Needed where a stream cannot go to the sink itself: output
mode update, which Spark does not offer to sinks in Python, and a table that is read anew for each
batch.

Invariant: a batch that Spark repeats is written once, as long as it has the same rows again
(docs/adr/0015-spark-sink.md). Runs in the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame

from penstock.spark.errors import SparkError

QUERY_PROPERTY: Final = "sql.streaming.queryId"
"""Spark's local property for the id of the query that a thread or task works for."""


def write_each_once(
    options: dict[str, str],
    prepare: Callable[[DataFrame], DataFrame] = lambda batch: batch,
) -> Callable[[DataFrame, int], None]:
    """For `foreachBatch`: writes what `prepare` makes of a batch with the sink's options."""

    def write(batch: DataFrame, number: int) -> None:
        (
            prepare(batch)
            .write.format("penstock")
            .options(**options)
            .options(txnAppId=query_id(batch), txnVersion=str(number))
            .mode("append")
            .save()
        )

    return write


def query_id(batch: DataFrame) -> str:
    """The id of the streaming query whose batch this is."""
    found = batch.sparkSession.sparkContext.getLocalProperty(QUERY_PROPERTY)
    if not found:
        raise SparkError(
            "a batch is written outside of foreachBatch of a streaming query, whose id it goes by"
        )
    return str(found)
