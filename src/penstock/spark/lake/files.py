"""Data files: their footers, and the moves that bring them into a table.

Everything here can be repeated: a move that was done is no error. Files on disk are flushed before
they are named in a commit; those on object stores are written to where they stay.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.errors import SparkError
from penstock.spark.lake.remote import Place, Remote
from penstock.spark.lake.table import Span, Staged
from penstock.spark.offsets import Partition


def flush(path: Path) -> None:
    """Brings a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish(folder: Place, staged: Sequence[Staged]) -> None:
    """Moves files to their places in the table."""
    if isinstance(folder, Remote):
        return
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


def remove(paths: Iterable[Place]) -> None:
    for path in paths:
        if isinstance(path, Remote):
            path.unlink()
        else:
            path.unlink(missing_ok=True)


def modified_s(path: Place) -> float:
    """When a file was written, as the clock of its file system says."""
    if isinstance(path, Remote):
        return (path.info().mtime_ns or 0) / 1e9
    return path.stat().st_mtime


def _where(path: Place) -> dict[str, Any]:
    """A file as pyarrow is told of it."""
    if isinstance(path, Remote):
        return {"where": path.path, "filesystem": path.files}
    return {"where": path}


def footer(path: Place) -> pq.FileMetaData:
    return pq.read_metadata(**_where(path))


def bounds(path: Place, names: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    """Least and largest value of columns by the footer; columns that it does not tell are left
    out.
    """
    found = footer(path)
    columns = {found.schema.column(i).path: i for i in range(found.num_columns)}
    known: dict[str, tuple[Any, Any]] = {}
    for name in names:
        groups = [
            found.row_group(g).column(columns[name]).statistics for g in range(found.num_row_groups)
        ]
        if groups and all(g is not None and g.has_min_max for g in groups):
            known[name] = min(g.min for g in groups), max(g.max for g in groups)
    return known


def spans(path: Place) -> dict[Partition, Span]:
    """The offsets that a data file holds, by topic and partition."""
    known = bounds(path, ("topic", "partition", "offset"))
    if len(known) == 3 and all(low == high for low, high in list(known.values())[:2]):
        low, high = known["offset"]
        return {(known["topic"][0], known["partition"][0]): Span(low, high + 1)}
    place = _where(path)
    rows = pq.read_table(place.pop("where"), columns=["topic", "partition", "offset"], **place)
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


def in_utc(schema: pa.Schema) -> pa.Schema:
    """The columns with times in UTC, whatever zone a session of Spark names."""
    kind = pa.timestamp("us", "UTC")
    return pa.schema([f.with_type(kind) if pa.types.is_timestamp(f.type) else f for f in schema])


def arrow_schema(path: Place) -> pa.Schema:
    """The columns of a data file, without what its writer noted beside them."""
    return pq.read_schema(**_where(path)).remove_metadata()
