"""Rewrites the small files of hours that are over into few large ones. Rows do not change.

An hour is over when none of its files is younger than `Policy.quiet_s`. Its small files are read,
sorted by partition and offset, written anew and exchanged in one commit; a crash before it
leaves the table as it was. Counts of rows are compared before the commit.

Limits: one hour is rewritten at a time, at most `HOURS_PER_ROUND_MAX` in a round, so that the
stream goes on soon.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.base.errors import invariant
from penstock.spark.lake.files import modified_s
from penstock.spark.lake.rows import ORDER, read
from penstock.spark.lake.staging import clear_leftovers, stage
from penstock.spark.lake.table import Conflict, DataFile, Table, Version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOURS_PER_ROUND_MAX: Final = 24


@dataclass(frozen=True)
class Policy:
    """When files are rewritten, and how large the new ones become."""

    quiet_s: float = 600.0
    small_files_max: int = 8
    file_bytes: int = 128 * 2**20

    @property
    def small_bytes(self) -> int:
        """Files below half of the wanted size are small: two of them make one."""
        return self.file_bytes // 2


def compact(spark: SparkSession, table: Table, policy: Policy) -> int:
    """How many files were replaced."""
    if not table.exists():
        return 0
    replaced = 0
    for files in _worth_it(table, table.load(), policy)[:HOURS_PER_ROUND_MAX]:
        if _rewrite(spark, table, files, policy):
            replaced += len(files)
    if replaced:
        table.tidy()
    clear_leftovers(table)
    return replaced


def _worth_it(table: Table, version: Version, policy: Policy) -> list[list[DataFile]]:
    """The small files of each hour that is over and has too many of them, oldest hour first."""
    young = time.time() - policy.quiet_s
    every: defaultdict[tuple[str, int], list[DataFile]] = defaultdict(list)
    for file in version.files:
        every[file.place].append(file)
    found = []
    for _, files in sorted(every.items()):
        small = [file for file in files if file.bytes < policy.small_bytes]
        if len(small) > policy.small_files_max and all(
            modified_s(table.folder / file.path) <= young for file in files
        ):
            found.append(small)
    return found


def _rewrite(spark: SparkSession, table: Table, files: list[DataFile], policy: Policy) -> bool:
    """Whether the files were replaced; not if others changed the table meanwhile."""
    base = table.load()
    if not {file.path for file in files} <= {file.path for file in base.files}:
        return False
    rows = read(spark, table, Version(base.number, base.state, tuple(files)))
    count = -(-sum(file.bytes for file in files) // policy.file_bytes)
    rows = rows.coalesce(1) if count == 1 else rows.repartitionByRange(count, *ORDER)
    staged = stage(table, rows.sortWithinPartitions(*ORDER), "compacted")
    held = sum(file.rows for file in files)
    invariant(staged.rows == held, f"{held} rows were compacted to {staged.rows}")
    try:
        table.commit(base, base.state, staged.files, files)
    except Conflict:
        staged.withdraw(table)
        return False
    staged.forget()
    return True
