"""A table in Delta's format, committed by the package deltalake: no jar, any reader of Delta.

Data files are moved into the table first; one commit of Delta's log then makes them part of it,
with an application transaction (query, batch) and the state in the commit's own metadata. Files
that no commit names are seen by nobody; `tidy` removes them with Delta's vacuum.

On an object store commits are made by its conditional writes, so that of two at the same time one
is refused.

Limits: a table whose rows others have marked deleted (deletion vectors) is not read. Delta forgets
old commits; the state is found as long as one of ours is in the log.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from penstock.spark.errors import SparkError
from penstock.spark.lake.files import arrow_schema, bounds, publish
from penstock.spark.lake.remote import Place, Remote
from penstock.spark.lake.table import STATE_KEY, Conflict, DataFile, Staged, State, Table, Version

if TYPE_CHECKING:
    from deltalake import DeltaTable

PARTITIONED_BY: Final = ("date", "hour")
TOLD: Final = ("topic", "partition", "offset", "timestamp")
"""Columns whose bounds a commit tells, so that readers can pass over files."""
VACUUM_HOURS: Final = 168
"""How long replaced files stay for queries that read an older version; Delta's own default."""
HISTORY_STEPS: Final = (10, None)
"""How many commits are looked through for the state: few at first, then all."""


class DeltaFormatTable(Table):
    FORMAT = "delta"

    def exists(self) -> bool:
        return (self.folder / "_delta_log").is_dir()

    def load(self) -> Version:
        if not self.exists():
            return Version(-1)
        table = self._open()
        return Version(table.version(), _state(table), tuple(_files(table)))

    def commit(
        self, base: Version, state: State, add: Sequence[Staged], remove: Sequence[DataFile]
    ) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        publish(self.folder, add)
        table = self._open() if base.number >= 0 else self._create(self.folder / add[0].file.path)
        if table.version() != max(base.number, 0):
            raise Conflict(f"the Delta table in {self.folder} has a newer version")
        actions = [_add_action(self.folder, each.file, bool(remove)) for each in add]
        properties = CommitProperties(
            custom_metadata={STATE_KEY: msgspec.json.encode(state).decode()},
            max_commit_retries=0,
            app_transactions=[Transaction(_app(q), batch) for q, batch in state.queries.items()],
        )
        try:
            table.create_write_transaction(
                [*actions, *(_remove_action(file) for file in remove)],
                "append",
                table.schema(),
                list(PARTITIONED_BY),
                commit_properties=properties,
            )
        except CommitFailedError as e:
            raise Conflict(f"the Delta table in {self.folder} has a newer version: {e}") from e

    def last_batch(self, base: Version, query: str) -> int:
        if base.number < 0:
            return -1
        found = self._open().transaction_version(_app(query))
        return -1 if found is None else found

    def tidy(self) -> None:
        self._open().vacuum(retention_hours=VACUUM_HOURS, dry_run=False)

    def _open(self) -> DeltaTable:
        _check_installed()
        from deltalake import DeltaTable

        return DeltaTable(str(self.folder), storage_options=self._options)

    @property
    def _options(self) -> dict[str, str] | None:
        return self.folder.options if isinstance(self.folder, Remote) else None

    def _create(self, sample: Place) -> DeltaTable:
        _check_installed()
        from deltalake import DeltaTable

        schema = arrow_schema(sample)
        schema = schema.append(pa.field("date", pa.date32())).append(pa.field("hour", pa.int32()))
        return DeltaTable.create(
            str(self.folder),
            schema,
            mode="ignore",
            partition_by=list(PARTITIONED_BY),
            storage_options=self._options,
        )


def _check_installed() -> None:
    if find_spec("deltalake") is None:
        raise SparkError(
            "the format delta needs the package deltalake: pip install 'penstock[spark,lake]'"
        )


def _app(query: str) -> str:
    """The application of Delta's transactions that a query is."""
    return f"penstock-{query}"


def _state(table: DeltaTable) -> State:
    for limit in HISTORY_STEPS:
        for commit in table.history(limit):
            if STATE_KEY in commit:
                return msgspec.json.decode(commit[STATE_KEY], type=State)
    return State()


def _files(table: DeltaTable) -> Iterator[DataFile]:
    if pa.table(table.deletion_vectors()).num_rows:
        raise SparkError(
            f"rows of the Delta table {table.table_uri} were deleted by deletion vectors, which are"
            " not read here: rewrite its files (in Spark: REORG TABLE ... APPLY (PURGE))"
        )
    for row in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        yield DataFile(
            unquote(row["path"]),
            row["partition.date"].isoformat(),
            row["partition.hour"],
            row["num_records"],
            row["size_bytes"],
        )


def _add_action(folder: Place, file: DataFile, replaces: bool) -> Any:
    from deltalake.transaction import AddAction

    known = bounds(folder / file.path, TOLD)
    told = {
        "numRecords": file.rows,
        "minValues": {name: _plain(low) for name, (low, _) in known.items()},
        "maxValues": {name: _plain(high) for name, (_, high) in known.items()},
        "nullCount": dict.fromkeys(known, 0),
    }
    values = {"date": file.date, "hour": str(file.hour)}
    return AddAction(file.path, file.bytes, values, _now_ms(), not replaces, json.dumps(told))


def _remove_action(file: DataFile) -> Any:
    from deltalake.transaction import RemoveAction

    values: dict[str, str | None] = {"date": file.date, "hour": str(file.hour)}
    return RemoveAction(file.path, False, _now_ms(), file.bytes, values)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _plain(value: Any) -> Any:
    """A bound as Delta writes it in JSON; records' times have milliseconds."""
    if isinstance(value, datetime):
        text = value.astimezone(UTC).isoformat(timespec="milliseconds")
        return text.replace("+00:00", "Z")
    return value
