"""Rows become data files beside the table, in parallel, before anything is committed.

Spark's executors write one file for each task and hour into a folder of this very try
(`_penstock/staging/QUERY-BATCH-CHANCE`), so that two tries never meet. The driver reads the files'
footers for what a commit says of them, and flushes them to disk. A try that came to nothing is
removed by a later one once it is `LEFTOVER_S` old: until then its driver may still live.

On object stores files are written to where they stay (`remote_rows`); those of a try that came to
nothing are removed by Delta's vacuum.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.spark.lake.files import flush, footer, joined, remove, spans
from penstock.spark.lake.remote import Remote
from penstock.spark.lake.remote_rows import write_files
from penstock.spark.lake.rows import DATE, HOUR, with_hours
from penstock.spark.lake.table import OURS, DataFile, Span, Staged, Table
from penstock.spark.offsets import Partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LEFTOVER_S: Final = 3600.0
COPY: Final = "_staged_"
"""What the columns that name folders begin with while date and hour stay in the files."""


@dataclass(frozen=True)
class Batch:
    """Data files that wait to be committed."""

    folder: Path | None
    files: tuple[Staged, ...]
    spans: dict[Partition, Span]
    columns: str

    @property
    def rows(self) -> int:
        return sum(each.file.rows for each in self.files)

    def forget(self) -> None:
        """After a commit: removes the folder of this try, whose files are in the table."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def withdraw(self, table: Table) -> None:
        """After a commit that was not made: removes the files, wherever they are."""
        remove(table.folder / each.file.path for each in self.files)
        self.forget()


def stage(table: Table, frame: DataFrame, name: str) -> Batch:
    """Writes rows to data files that no reader sees yet."""
    name = f"{name}-{uuid.uuid4().hex[:8]}"
    rows, by = with_hours(frame), [DATE, HOUR]
    table.prepare(lambda: rows.limit(0).toArrow().schema)
    if isinstance(table.folder, Remote):
        keep = table.KEEPS_PARTITION_COLUMNS
        there = write_files(table.folder, rows, name, keep_hours=keep)
        staged = tuple(Staged(file, file.path) for file in there)
        held = joined(spans(table.folder / file.path) for file in there)
        return Batch(None, staged, held, frame.schema.json())
    folder = table.folder / OURS / "staging" / name
    if table.KEEPS_PARTITION_COLUMNS:
        rows = rows.withColumns({COPY + column: rows[column] for column in by})
        by = [COPY + column for column in by]
    session = frame.sparkSession
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    rows.write.partitionBy(*by).option("compression", "zstd").mode("overwrite").parquet(str(folder))
    files = tuple(_staged(table.folder, folder, name))
    held = joined(spans(table.folder / each.source) for each in files)
    return Batch(folder, files, held, frame.schema.json())


def _staged(root: Path, folder: Path, name: str) -> Iterator[Staged]:
    for number, path in enumerate(sorted(folder.glob("*=*/*=*/*.parquet"))):
        flush(path)
        day, hour = (part.partition("=")[2] for part in path.parts[-3:-1])
        target = f"{DATE}={day}/{HOUR}={hour}/{name}-{number:05d}.parquet"
        rows = footer(path).num_rows
        file = DataFile(target, day, int(hour), rows, path.stat().st_size)
        yield Staged(file, str(path.relative_to(root)))


def clear_leftovers(table: Table, older_than_s: float = LEFTOVER_S) -> None:
    """Removes what tries have left that were never committed."""
    if isinstance(table.folder, Remote):
        return
    root = table.folder / OURS / "staging"
    if not root.is_dir():
        return
    old = [p for p in root.iterdir() if p.stat().st_mtime < time.time() - older_than_s]
    if not old:
        return
    live = {file.path for file in table.load().files}
    for folder in old:
        for path in table.folder.glob(f"{DATE}=*/{HOUR}=*/{folder.name}-*.parquet"):
            if str(path.relative_to(table.folder)) not in live:
                remove([path])
        shutil.rmtree(folder, ignore_errors=True)
