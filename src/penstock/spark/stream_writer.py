"""Writes the micro-batches of a stream, each row once.

Spark tells a task's `write` neither the query nor the batch; both lie in the local properties of
the task. The query's id is kept in the checkpoint and stays the same over restarts.

Invariant: the writer has no state. Spark makes a new one for every call of `commit` and `abort`, in
another process than the one that planned the batch; all that they need comes with the messages.

Limits: when a query is stopped, Spark aborts while its tasks still run, and without messages, so
nothing can be ended then: the tasks' transactions stay open until the query goes on, or until
kafka.transaction.timeout.ms is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.spark.errors import OptionError, SparkError
from penstock.spark.sink import SinkOptions
from penstock.spark.writer import Handed, Task, Work, abort_all, commit_all, handed

QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"


def work_of_task() -> Work:
    """Which query, batch and task this is."""
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_PROPERTY) if context else None
    batch_id = context.getLocalProperty(BATCH_PROPERTY) if context else None
    if context is None or query is None or batch_id is None:
        raise SparkError(
            f"Spark does not say which query and batch this task belongs to (local properties"
            f" {QUERY_PROPERTY}, {BATCH_PROPERTY}); the sink is tested with Spark 4.3"
        )
    return Work(query, int(batch_id), context.partitionId())


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        if options.app_id is not None:
            raise OptionError(
                "options txnAppId and txnVersion are for batches; a stream has its own"
            )
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Handed:
        return self.task(work_of_task()).run(iterator)

    def task(self, work: Work) -> Task:
        return Task(self._options, work)

    # Spark calls these two by position; the second parameter's name is PySpark's.

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        commit_all(self._options, handed(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        abort_all(self._options, handed(messages))
