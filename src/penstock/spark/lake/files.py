"""Data files on disk: their footers, and the moves that bring them into a table.

Everything here can be repeated: a move that was done is no error. Files are flushed to disk before
they are named in a commit.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.errors import SparkError
from penstock.spark.lake.table import Span, Staged
from penstock.spark.offsets import Partition


def flush(path: Path) -> None:
    """Brings a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish(folder: Path, staged: Sequence[Staged]) -> None:
    """Moves files to their places in the table."""
    for each in staged:
        source, target = folder / each.source, folder / each.file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            source.rename(target)
        except FileNotFoundError:
            if not target.exists():
                raise SparkError(
                    f"the data file {target} of a committed batch is gone from {source}, too:"
                    " bring the folder back from a copy"
                ) from None


def remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def bounds(path: Path, names: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    """Least and largest value of columns by the footer; columns that it does not tell are left
    out.
    """
    found = pq.read_metadata(path)
    columns = {found.schema.column(i).path: i for i in range(found.num_columns)}
    known: dict[str, tuple[Any, Any]] = {}
    for name in names:
        groups = [
            found.row_group(g).column(columns[name]).statistics for g in range(found.num_row_groups)
        ]
        if groups and all(g is not None and g.has_min_max for g in groups):
            known[name] = min(g.min for g in groups), max(g.max for g in groups)
    return known


def spans(path: Path) -> dict[Partition, Span]:
    """The offsets that a data file holds, by topic and partition."""
    known = bounds(path, ("topic", "partition", "offset"))
    if len(known) == 3 and all(low == high for low, high in list(known.values())[:2]):
        low, high = known["offset"]
        return {(known["topic"][0], known["partition"][0]): Span(low, high + 1)}
    rows = pq.read_table(path, columns=["topic", "partition", "offset"])
    found = rows.group_by(["topic", "partition"]).aggregate([("offset", "min_max")]).to_pylist()
    return {
        (row["topic"], row["partition"]): Span(
            row["offset_min_max"]["min"], row["offset_min_max"]["max"] + 1
        )
        for row in found
    }


def joined(parts: Iterable[dict[Partition, Span]]) -> dict[Partition, Span]:
    """What several files hold together."""
    found: dict[Partition, Span] = {}
    for part in parts:
        for partition, new in part.items():
            old = found.get(partition, new)
            found[partition] = Span(min(old.first, new.first), max(old.end, new.end))
    return found


def arrow_schema(path: Path) -> pa.Schema:
    """The columns of a data file, without what its writer noted beside them."""
    return pq.read_schema(path).remove_metadata()
