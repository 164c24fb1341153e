"""Rows to and from data files on object stores, by the Python workers of Spark's executors.

Spark itself would need jars for each store. Here tasks write and read Parquet by pyarrow
(`mapInArrow`), to names that nobody else has, so that a task that is repeated, or a batch that is
never committed, leaves files that no commit names. There are no moves: a file is written to where
the table has it.

Limits: a task holds one of Spark's Arrow batches and one open file, since its rows are sorted by
hour. Readers take whole files, without looking at their statistics.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.lake.files import in_utc
from penstock.spark.lake.remote import Place, Remote
from penstock.spark.lake.rows import DATE, HOUR, ORDER
from penstock.spark.lake.table import DataFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

WRITTEN: Final = "path string, date string, hour int, rows long, bytes long"
READ_ROWS: Final = 65_536
"""Rows that a reader hands to Spark at a time."""
READ_TASKS_MAX: Final = 200


def write_files(folder: Remote, rows: DataFrame, name: str, *, keep_hours: bool) -> list[DataFile]:
    """Writes rows that have date and hour; with `keep_hours` the files hold these, too."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = list(_write(folder, batches, name, keep_hours))
        yield pa.RecordBatch.from_pylist(found, _written_schema())

    ordered = rows.sortWithinPartitions(DATE, HOUR, *ORDER)
    written = ordered.mapInArrow(write, WRITTEN).collect()
    return [DataFile(r.path, r.date, r.hour, r.rows, r.bytes) for r in sorted(written)]


def _written_schema() -> pa.Schema:
    return pa.schema(
        [
            ("path", pa.string()),
            ("date", pa.string()),
            ("hour", pa.int32()),
            ("rows", pa.int64()),
            ("bytes", pa.int64()),
        ]
    )


def _write(
    folder: Remote, batches: Iterator[pa.RecordBatch], name: str, keep_hours: bool
) -> Iterator[dict[str, Any]]:
    """One file after the other: rows of an hour come together."""
    files, open_file = folder.files, None
    for batch in batches:
        for place, part in _by_hour(batch):
            if open_file is not None and open_file.place != place:
                yield open_file.close()
                open_file = None
            part = part if keep_hours else part.drop_columns([DATE, HOUR])
            part = part.cast(in_utc(part.schema))
            if open_file is None:
                open_file = _OpenFile(folder, files, place, name, part.schema)
            open_file.write(part)
    if open_file is not None:
        yield open_file.close()


def _by_hour(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int], pa.RecordBatch]]:
    """The rows of each hour, which stand together."""
    places = list(zip(batch[DATE].to_pylist(), batch[HOUR].to_pylist(), strict=True))
    start = 0
    for end in range(1, len(places) + 1):
        if end == len(places) or places[end] != places[start]:
            day, hour = places[start]
            yield (day.isoformat(), hour), batch.slice(start, end - start)
            start = end


class _OpenFile:
    """A data file that is being written."""

    def __init__(
        self, folder: Remote, files: Any, place: tuple[str, int], name: str, schema: pa.Schema
    ) -> None:
        self.place = place
        day, hour = place
        unique = uuid.uuid4().hex[:8]
        self._path = f"{DATE}={day}/{HOUR}={hour}/{name}-{unique}.parquet"
        self._sink = files.open_output_stream((folder / self._path).path)
        self._writer = pq.ParquetWriter(self._sink, schema, compression="zstd")
        self._rows = 0

    def write(self, part: pa.RecordBatch) -> None:
        self._writer.write_batch(part)
        self._rows += part.num_rows

    def close(self) -> dict[str, Any]:
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        day, hour = self.place
        found = {"path": self._path, "date": day, "hour": hour}
        return {**found, "rows": self._rows, "bytes": size}


def read_files(spark: SparkSession, schema: StructType, files: Sequence[Place]) -> DataFrame:
    """The rows of data files."""
    names = list(schema.names)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for address, endpoint in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                place = Remote(address, endpoint)
                with place.files.open_input_file(place.path) as source:
                    yield from pq.ParquetFile(source).iter_batches(READ_ROWS, columns=names)

    places = [(file.address, file.endpoint) for file in files if isinstance(file, Remote)]
    listed = spark.createDataFrame(places, "address string, endpoint string")
    return listed.repartition(min(len(places), READ_TASKS_MAX)).mapInArrow(read, schema)
