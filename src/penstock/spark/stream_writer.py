"""Writes the micro-batches of a stream, each row once.

Spark tells a task's `write` neither the query nor the batch; both lie in the local properties of
the task. The query's id is kept in the checkpoint and stays the same over restarts.

Invariant: the writer has no state. Spark makes a new one for every call of `commit` and `abort`, in
another process than the one that planned the batch; all that they need comes with the messages.

When a query is stopped, Spark aborts while its tasks still run, and without messages. What they
have open is then ended by its name, for which the query's id is read from the checkpoint.

Limits: a checkpoint on another file system than this machine's is not read. The transactions of a
query that is stopped, or fails, then stay open until it goes on, or until
kafka.transaction.timeout.ms is over; so does that of a task which begins after the abort.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.spark.batches import QUERY_PROPERTY
from penstock.spark.errors import OptionError, SparkError
from penstock.spark.sink import SinkOptions
from penstock.spark.writer import (
    Handed,
    Task,
    Work,
    abort_all,
    commit_all,
    end_unfinished,
    handed,
)

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


class _Metadata(msgspec.Struct):
    """What a checkpoint says of its query, in the file `metadata`."""

    id: str


def query_of(checkpoint: str | None) -> str | None:
    """The id of the query whose checkpoint this is; None if it cannot be read from here."""
    parts = urlsplit(checkpoint or "")
    if not checkpoint or parts.scheme not in ("", "file"):
        return None
    folder = unquote(parts.path) if parts.scheme else checkpoint
    try:
        return msgspec.json.decode((Path(folder) / "metadata").read_bytes(), type=_Metadata).id
    except (OSError, msgspec.DecodeError):
        return None


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
        if (query := query_of(self._options.checkpoint)) is not None:
            end_unfinished(self._options, query, messages)
