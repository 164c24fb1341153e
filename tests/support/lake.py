"""Tables of the lake without Spark: data files made by pyarrow, and what other readers find."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from penstock.spark.lake.files import joined, spans
from penstock.spark.lake.staging import Batch
from penstock.spark.lake.table import OURS, DataFile, Staged, Table, Version

DAY = date(2026, 11, 16)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def rows_of(topic: str, partition: int, offsets: Sequence[int], hour: int) -> pa.Table:
    """Rows whose value says where they are from."""
    at = datetime(DAY.year, DAY.month, DAY.day, hour, 30, tzinfo=UTC)
    count = len(offsets)
    return pa.table(
        {
            "topic": [topic] * count,
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([at] * count, pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0] * count, pa.int32()),
            "key": pa.array([None] * count, pa.binary()),
            "value": pa.array([b"%d" % offset for offset in offsets], pa.binary()),
            "headers": pa.array([[{"key": "a", "value": b"1"}]] * count, HEADERS),
        }
    )


def batch_of(table: Table, *parts: tuple[pa.Table, int]) -> Batch:
    """A batch as the staging of Spark leaves it; each part is rows and their hour."""
    name = uuid.uuid4().hex[:8]
    folder = table.local / OURS / "staging" / name
    folder.mkdir(parents=True)
    files = []
    for number, (rows, hour) in enumerate(parts):
        if table.KEEPS_PARTITION_COLUMNS:
            count = rows.num_rows
            rows = rows.append_column("date", pa.array([DAY] * count, pa.date32()))
            rows = rows.append_column("hour", pa.array([hour] * count, pa.int32()))
        path = folder / f"{number}.parquet"
        pq.write_table(rows, path)
        target = f"date={DAY}/hour={hour}/{name}-{number:05d}.parquet"
        size = path.stat().st_size
        file = DataFile(target, str(DAY), hour, rows.num_rows, size)
        files.append(Staged(file, str(path.relative_to(table.local))))
    held = joined(spans(table.local / each.source) for each in files)
    return Batch(folder, tuple(files), held, "columns")


def commit_batch(
    table: Table, query: str, number: int, batch: Batch, base: Version | None = None
) -> None:
    base = base or table.load()
    state = base.state.with_batch(query, number, batch.spans, batch.columns)
    table.commit(base, state, batch.files, ())


def seen_by_others(table: Table) -> list[dict[str, Any]]:
    """The rows that a reader of the format finds, which knows nothing of us."""
    if table.FORMAT == "delta":
        from deltalake import DeltaTable

        found = DeltaTable(table.local).to_pyarrow_table()
    elif table.FORMAT == "iceberg":
        from pyiceberg.table import StaticTable

        newest = max((table.local / "metadata").glob("*.metadata.json"))
        found = StaticTable.from_metadata(str(newest)).scan().to_arrow()
    else:
        found = ds.dataset(table.local, format="parquet", partitioning=_by_hour()).to_table()
    return sorted(found.to_pylist(), key=lambda r: (r["topic"], r["partition"], r["offset"]))


def _by_hour() -> Any:
    return ds.partitioning(pa.schema([("date", pa.date32()), ("hour", pa.int32())]), flavor="hive")


def offsets_seen(table: Table) -> list[int]:
    return [row["offset"] for row in seen_by_others(table)]


def offsets_read(table: Table) -> list[int]:
    """The offsets in the files that the last commit names."""
    version = table.load()
    found: list[int] = []
    for file in version.files:
        found += pq.read_table(table.local / file.path, columns=["offset"])["offset"].to_pylist()
    return sorted(found)


def data_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("date=*/hour=*/*.parquet"))
