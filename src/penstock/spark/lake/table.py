"""What a table is, whatever its format: a folder of data files and a chain of commits.

A commit adds and removes whole data files and carries the table's state: which batch of each query
was committed last, which offsets of each partition are in the table, and which columns. It is
made upon the version that its maker has read; if another one came first it is refused (`Conflict`)
and nothing has happened. So a repeated batch finds itself in the state and is left out, and rows
that are in the table cannot come in a second time by another way.

Limits: one folder holds one table.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from penstock.spark.errors import OptionError, SparkError
from penstock.spark.lake.remote import Place, Remote, remote
from penstock.spark.offsets import Partition

if TYPE_CHECKING:
    import pyarrow as pa

OURS: Final = "_penstock"
"""The folder of ours in a table. Readers of Parquet folders pass over names that begin with `_`."""
STATE_KEY: Final = "penstock.state"
"""Where formats with metadata of their own keep the state of a commit."""
FORMATS: Final = ("parquet", "delta", "iceberg")
REMOTE_FORMAT: Final = "delta"
"""The format of tables on object stores, where files cannot be moved in one step."""


class Conflict(SparkError):
    """Another commit came first; nothing has happened."""


class DataFile(msgspec.Struct, frozen=True):
    """A Parquet file of one hour; `path` is relative to the table's folder."""

    path: str
    date: str
    hour: int
    rows: int
    bytes: int

    @property
    def place(self) -> tuple[str, int]:
        return self.date, self.hour


class Staged(msgspec.Struct, frozen=True):
    """A data file that is written and waits at `source`, in the table's folder, to be committed."""

    file: DataFile
    source: str


class Span(msgspec.Struct, frozen=True):
    """Offsets of a partition: the first, and the one after the last."""

    first: int
    end: int


class State(msgspec.Struct, frozen=True):
    """What a commit says of the table as a whole."""

    queries: dict[str, int] = {}
    spans: dict[str, dict[str, Span]] = {}
    columns: str = ""
    """The schema of the rows as Spark writes it in JSON, without date and hour."""

    def span(self, partition: Partition) -> Span | None:
        return self.spans.get(partition[0], {}).get(str(partition[1]))

    def with_batch(
        self, query: str, batch: int, spans: Mapping[Partition, Span], columns: str
    ) -> State:
        """The state after a batch; refuses rows that the table has, and other columns."""
        if self.columns and self.columns != columns:
            raise SparkError(
                f"the table has other columns than batch {batch} of query {query} writes:"
                " a changed value format needs a table of its own; give another folder"
            )
        found = {topic: dict(of_topic) for topic, of_topic in self.spans.items()}
        for (topic, partition), new in spans.items():
            old = self.span((topic, partition))
            if old is not None and new.first < old.end:
                raise SparkError(
                    f"the table holds topic {topic} partition {partition} up to offset"
                    f" {old.end - 1}, and batch {batch} of query {query} brings offset {new.first}"
                    " again: another checkpoint has archived it. Go on with that checkpoint, or"
                    " archive to another folder"
                )
            first = new.first if old is None else old.first
            found.setdefault(topic, {})[str(partition)] = Span(first, new.end)
        return State(self.queries | {query: batch}, found, columns)


@dataclass(frozen=True)
class Version:
    """A table as a reader has found it; `number` is -1 for one that is not there yet."""

    number: int
    state: State = field(default_factory=State)
    files: tuple[DataFile, ...] = ()


class Table(ABC):
    """One table; see the module. Owned by the thread that uses it."""

    FORMAT: ClassVar[str]
    KEEPS_PARTITION_COLUMNS: ClassVar[bool] = False
    """Whether data files hold date and hour too, and not only their paths."""

    def __init__(self, folder: Place) -> None:
        self.folder = folder

    @property
    def local(self) -> Path:
        """The folder, of a table that can only be on a file system of this machine."""
        assert isinstance(self.folder, Path)
        return self.folder

    def check_writable(self) -> None:
        """Refuses a place where no table can be written, before anything is."""
        if isinstance(self.folder, Remote):
            self.folder.check_writable()
            return
        there = next(p for p in (self.folder, *self.folder.parents) if p.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            raise OptionError(
                f"the table cannot be written to {self.folder}: {there} is no folder that this user"
                " may write to"
            )

    @abstractmethod
    def exists(self) -> bool:
        """Whether anything was ever committed."""

    @abstractmethod
    def load(self) -> Version:
        """The last commit; whatever its maker has left undone is done now."""

    @abstractmethod
    def commit(
        self, base: Version, state: State, add: Sequence[Staged], remove: Sequence[DataFile]
    ) -> None:
        """Adds and removes files in one step upon `base`, or raises `Conflict`."""

    def prepare(self, columns: Callable[[], pa.Schema]) -> None:  # noqa: B027  # most need nothing
        """Called before files are written; `columns` are those of their rows, with date and
        hour.
        """

    def last_batch(self, base: Version, query: str) -> int:
        """The last batch of a query that was committed, -1 for none."""
        return base.state.queries.get(query, -1)

    @abstractmethod
    def tidy(self) -> None:
        """Removes what no reader of the near past needs, after files were replaced."""


def open_table(folder: str, wanted: str | None = None, catalog: str | None = None) -> Table:
    """The table in a folder, or of a catalog; one that is to be made needs a format."""
    from penstock.spark.lake.delta_table import DeltaFormatTable
    from penstock.spark.lake.iceberg_table import IcebergTable
    from penstock.spark.lake.parquet_table import ParquetTable

    if wanted is not None and wanted not in FORMATS:
        raise OptionError(f"format must be {' or '.join(FORMATS)}, not {wanted!r}")
    if catalog is not None:
        return _of_catalog(catalog, folder, wanted)
    place = _place(folder)
    kinds: tuple[type[Table], ...] = (ParquetTable, DeltaFormatTable, IcebergTable)
    if isinstance(place, Remote):
        kinds = (DeltaFormatTable,)
        if wanted not in (None, REMOTE_FORMAT):
            raise OptionError(
                f"tables on object stores have the format {REMOTE_FORMAT}, not {wanted}: files"
                f" cannot be moved there in one step; say table-format {REMOTE_FORMAT}, or name the"
                " catalog of an Iceberg table"
            )
    tables = [kind(place) for kind in kinds]
    found = next((table for table in tables if table.exists()), None)
    if found is None and wanted is None:
        raise OptionError(f"there is no table in {folder}: give the folder that archive wrote to")
    if found is None:
        return next(table for table in tables if wanted == table.FORMAT)
    if wanted is not None and wanted != found.FORMAT:
        raise OptionError(
            f"the table in {folder} has the format {found.FORMAT}, not {wanted}: say format"
            f" {found.FORMAT}, or give another folder"
        )
    return found


def _of_catalog(catalog: str, name: str, wanted: str | None) -> Table:
    from penstock.spark.lake.catalog_table import CatalogTable

    if wanted not in (None, CatalogTable.FORMAT):
        raise OptionError(
            f"tables of a catalog have the format {CatalogTable.FORMAT}, not {wanted}: say"
            f" table-format {CatalogTable.FORMAT}"
        )
    found = CatalogTable(catalog, name)
    if wanted is None and not found.exists():
        raise OptionError(f"there is no table {name} in the catalog {catalog}: correct the name")
    return found


def _place(folder: str) -> Place:
    path = folder.removeprefix("file://")
    return remote(path) if "://" in path else Path(path).absolute()
