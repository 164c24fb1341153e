"""A table in Iceberg's format, committed by the package pyiceberg: no jar, any reader of Iceberg.

The catalog is an SQLite file in the table's folder (`catalog.db`, table `lake.archive`), or another
one (`catalog_table`); readers without a catalog open the newest `metadata/*.metadata.json`. Data
files are moved into the table first; one snapshot then makes them part of it, and the state is in
the snapshot's summary. Files that no snapshot names are seen by nobody.

Limits: Iceberg notes absolute paths, so a folder stays where it is. Files that a compaction
replaced stay, too, until somebody expires the snapshots that name them. A table with delete
files of others is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from penstock.spark.errors import SparkError
from penstock.spark.lake.files import arrow_schema, publish
from penstock.spark.lake.remote import Place
from penstock.spark.lake.table import STATE_KEY, Conflict, DataFile, Staged, State, Table, Version

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.table import Table as Iceberg
    from pyiceberg.table import Transaction

CATALOG_FILE: Final = "catalog.db"
NAMESPACE: Final = "lake"
NAME: Final = f"{NAMESPACE}.archive"
PROPERTIES: Final = {
    "commit.retry.num-retries": "0",  # a commit upon another state than was read is refused
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
EPOCH: Final = date(1970, 1, 1)


class IcebergTable(Table):
    FORMAT = "iceberg"
    KEEPS_PARTITION_COLUMNS = True  # pyiceberg finds a file's partition in its columns

    _name = NAME

    def exists(self) -> bool:
        return (self.local / CATALOG_FILE).is_file() and self._catalog.table_exists(self._name)

    def load(self) -> Version:
        if not self.exists():
            return Version(-1)
        table = self._catalog.load_table(self._name)
        files = tuple(self._data_file(file) for file in _live(table))
        return Version(_number(table), _state(table), files)

    def commit(
        self, base: Version, state: State, add: Sequence[Staged], remove: Sequence[DataFile]
    ) -> None:
        from pyiceberg.exceptions import CommitFailedException

        publish(self.folder, add)
        paths = [str(self.folder / each.file.path) for each in add]
        table = self._open_or_create(self.folder / add[0].file.path)
        if _number(table) != max(base.number, 0):
            raise Conflict(f"the Iceberg table in {self.folder} has a newer snapshot")
        summary = {STATE_KEY: msgspec.json.encode(state).decode()}
        try:
            with table.transaction() as transaction:
                if remove:
                    gone = {str(self.folder / file.path) for file in remove}
                    _replace(table, transaction, gone, paths, summary)
                else:
                    transaction.add_files(paths, summary, check_duplicate_files=False)
        except CommitFailedException as e:
            raise Conflict(f"the Iceberg table in {self.folder} has a newer snapshot: {e}") from e

    def tidy(self) -> None:
        pass

    def _open_or_create(self, sample: Place) -> Iceberg:
        if not self._catalog.table_exists(self._name):
            self._create(arrow_schema(sample), str(self.local))
        return self._catalog.load_table(self._name)

    def _create(self, schema: pa.Schema, location: str | None) -> None:
        """Makes the table by date and hour; without a location, where the catalog puts it."""
        catalog, properties = self._catalog, dict(PROPERTIES)
        catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        made = catalog.create_table_transaction(self._name, schema, location, properties=properties)
        with made as transaction, transaction.update_spec() as spec:
            spec.add_identity("date")
            spec.add_identity("hour")

    @cached_property
    def _catalog(self) -> Catalog:
        try:
            from pyiceberg.catalog.sql import SqlCatalog
        except ImportError:
            raise SparkError(
                "the format iceberg needs the package pyiceberg: pip install 'penstock[spark,lake]'"
            ) from None
        self.local.mkdir(parents=True, exist_ok=True)
        place = {"uri": f"sqlite:///{self.local / CATALOG_FILE}", "warehouse": str(self.local)}
        return SqlCatalog("penstock", **place)

    def _data_file(self, file: IcebergFile) -> DataFile:
        path = plain(file.file_path).removeprefix(f"{self.folder}/")
        days, hour = file.partition[0], file.partition[1]
        day = (EPOCH + timedelta(days=days)).isoformat()
        return DataFile(path, day, hour, file.record_count, file.file_size_in_bytes)


def plain(address: str) -> str:
    """An address in a file system of this machine as a path; any other as it is."""
    return re.sub(r"^file:(//)?(?=/)", "", address)


def _live(table: Iceberg) -> Iterator[IcebergFile]:
    for task in table.scan().plan_files():
        if task.delete_files:
            raise SparkError(
                f"rows of the Iceberg table in {table.location()} were deleted by delete files,"
                " which are not read here: rewrite its data files"
            )
        yield task.file


def _number(table: Iceberg) -> int:
    snapshot = table.current_snapshot()
    return 0 if snapshot is None else snapshot.sequence_number or 0


def _state(table: Iceberg) -> State:
    snapshot = table.current_snapshot()
    while snapshot is not None:
        found = snapshot.summary and snapshot.summary.get(STATE_KEY)
        if found:
            return msgspec.json.decode(found, type=State)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return State()


def _replace(
    table: Iceberg,
    transaction: Transaction,
    gone: set[str],
    paths: list[str],
    summary: dict[str, str],
) -> None:
    """One snapshot with other files for the same rows."""
    from pyiceberg.io.pyarrow import parquet_file_to_data_file

    old = [file for file in _live(table) if plain(file.file_path) in gone]
    with transaction.update_snapshot(snapshot_properties=summary).overwrite() as change:
        for file in old:
            change.delete_data_file(file)
        for path in paths:
            change.append_data_file(parquet_file_to_data_file(table.io, table.metadata, path))
