"""Appends the micro-batches of a stream to a table, each once.

A batch is known by its query (the id in the checkpoint) and number. What is in the table is left
out when Spark repeats it; what is not is written, staged and committed in one step upon the version
that was read. A commit that another one outran is made again, upon the newer version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.spark.errors import SparkError
from penstock.spark.lake.staging import Batch, stage
from penstock.spark.lake.table import Conflict, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COMMIT_TRIES_MAX: Final = 5
QUERY_PROPERTY: Final = "sql.streaming.queryId"


def append_batch(table: Table, frame: DataFrame, batch: int, query: str | None = None) -> bool:
    """Whether the batch was written now; False for one that is in the table, or has no rows."""
    query = query or query_id(frame)
    if table.last_batch(table.load(), query) >= batch:
        return False
    staged = stage(table, frame, f"{query[:8]}-{batch}")
    if not staged.files or not commit_once(table, staged, query, batch):
        staged.withdraw(table)
        return False
    staged.forget()
    return True


def query_id(frame: DataFrame) -> str:
    """The id of the streaming query whose batch this is."""
    found = frame.sparkSession.sparkContext.getLocalProperty(QUERY_PROPERTY)
    if not found:
        raise SparkError("rows are appended in foreachBatch of a streaming query, or with an id")
    return str(found)


def commit_once(table: Table, staged: Batch, query: str, batch: int) -> bool:
    """Whether the staged files are in the table now; not if another try of the batch was first."""
    for _ in range(COMMIT_TRIES_MAX):
        base = table.load()
        if table.last_batch(base, query) >= batch:
            return False
        state = base.state.with_batch(query, batch, staged.spans, staged.columns)
        try:
            table.commit(base, state, staged.files, ())
        except Conflict:
            continue
        return True
    raise SparkError(
        f"batch {batch} of query {query} could not be committed to {table.folder}: others commit to"
        f" the table without a pause ({COMMIT_TRIES_MAX} tries). Start the query again"
    )
