"""Appends the micro-batches of a stream to a table, each once.

A batch is known by its query (the id in the checkpoint) and number. What is in the table is left
out when Spark repeats it; what is not is written, staged and committed in one step upon the version
that was read. A commit that another one outran is made again, upon the newer version.

Invariant: no row is left out that the table lacks. A checkpoint that is older than the table, from
a copy or after a power failure, gives numbers that were used to other rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from penstock.spark.batches import query_id
from penstock.spark.errors import SparkError
from penstock.spark.lake.staging import Batch, stage
from penstock.spark.lake.table import Conflict, State, Table
from penstock.spark.offsets import Partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COMMIT_TRIES_MAX: Final = 5


def append_batch(table: Table, frame: DataFrame, batch: int, query: str | None = None) -> bool:
    """Whether the batch was written now; False for one that is in the table, or has no rows."""
    query = query or query_id(frame)
    if table.last_batch(table.load(), query) >= batch:
        check_held(table.load().state, last_offsets(frame), f"batch {batch} of query {query}")
        return False
    staged = stage(table, frame, f"{query[:8]}-{batch}")
    if not staged.files or not commit_once(table, staged, query, batch):
        staged.withdraw(table)
        return False
    staged.forget()
    return True


def last_offsets(frame: DataFrame) -> dict[Partition, int]:
    """The largest offset of each partition among the rows."""
    found = frame.groupBy("topic", "partition").agg({"offset": "max"}).collect()
    return {(topic, partition): last for topic, partition, last in found}


def check_held(state: State, lasts: Mapping[Partition, int], what: str) -> None:
    """Refuses a batch that has the number of one in the table, but rows that are not there."""
    for (topic, partition), last in lasts.items():
        span = state.span((topic, partition))
        if span is None or last >= span.end:
            raise SparkError(
                f"{what} is in the table, but not its topic {topic} partition {partition} offset"
                f" {last}: the checkpoint is older than the table. Start with a new checkpoint,"
                " which goes on where the table ends"
            )


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
