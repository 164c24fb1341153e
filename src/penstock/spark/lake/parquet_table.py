"""A table that is a folder of Parquet files with a log of commits of our own.

    date=2026-11-16/hour=5/*.parquet      data files; any reader of Parquet finds them
    _penstock/log/00000000000000000007.json    commit 7

A commit is one file of the log that appears at once (a hard link, which fails if the name is
taken). It names the files that it adds, where they are staged, and those that it removes; only then
are files removed and moved. Whoever opens the table does what the maker of the last commit has left
undone, so for us a commit is whole or not there.

Other readers look at the folders. While a commit is carried out, or after a crash in the middle
until somebody opens the table again, they see a part of that batch's files; of a compaction, they
miss rows of that hour. They never see a row twice, and never rows of a batch that was not
committed: files that are replaced go before the new ones come.

Limits: every `ENTRIES_PER_LIST`th commit names all files, and those before it are forgotten. Files
that a compaction replaced are gone at once: a query that was reading them fails and is repeated.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from penstock.spark.lake.files import flush, publish, remove
from penstock.spark.lake.table import OURS, Conflict, DataFile, Staged, State, Table, Version

ENTRIES_PER_LIST: Final = 100
LIST_TRIES_MAX: Final = 10
"""How often a reader looks again when entries that it was about to read were forgotten."""


class Entry(msgspec.Struct, frozen=True):
    """A commit, as the log has it. With `whole`, `files` are all files of the table."""

    state: State
    files: list[DataFile]
    staged: dict[str, str]
    removed: list[str]
    whole: bool = False


class ParquetTable(Table):
    FORMAT = "parquet"

    @property
    def _log(self) -> Path:
        return self.local / OURS / "log"

    def exists(self) -> bool:
        return bool(self._numbers())

    def load(self) -> Version:
        for tried in range(LIST_TRIES_MAX):
            try:
                return self._load()
            except FileNotFoundError:
                if tried + 1 == LIST_TRIES_MAX:
                    raise
        raise AssertionError("the loop returns or raises")

    def _load(self) -> Version:
        numbers = self._numbers()
        if not numbers:
            return Version(-1)
        entries = []
        for number in reversed(numbers):
            entries.append(self._read(number))
            if entries[-1].whole:
                break
        files: dict[str, DataFile] = {}
        for entry in reversed(entries):
            for path in entry.removed:
                files.pop(path, None)
            files |= {file.path: file for file in entry.files}
        self._carry_out(entries[0])
        return Version(numbers[-1], entries[0].state, tuple(files.values()))

    def commit(
        self, base: Version, state: State, add: Sequence[Staged], remove: Sequence[DataFile]
    ) -> None:
        number = base.number + 1
        added, removed = [each.file for each in add], [file.path for file in remove]
        whole = number % ENTRIES_PER_LIST == 0
        if whole:
            gone = set(removed)
            added = [file for file in base.files if file.path not in gone] + added
        staged = {each.file.path: each.source for each in add}
        entry = Entry(state, added, staged, removed, whole)
        self._write(number, entry)
        self._carry_out(entry)
        if whole:
            self._forget(number)

    def tidy(self) -> None:
        pass

    def _carry_out(self, entry: Entry) -> None:
        remove(self.local / path for path in entry.removed)
        files = {file.path: file for file in entry.files}
        publish(self.local, [Staged(files[p], source) for p, source in entry.staged.items()])

    def _numbers(self) -> list[int]:
        try:
            names = os.listdir(self._log)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(int(name[:-5]) for name in names if name.endswith(".json"))

    def _path(self, number: int) -> Path:
        return self._log / f"{number:020d}.json"

    def _read(self, number: int) -> Entry:
        return msgspec.json.decode(self._path(number).read_bytes(), type=Entry)

    def _write(self, number: int, entry: Entry) -> None:
        self._log.mkdir(parents=True, exist_ok=True)
        draft = self._log / f"{uuid.uuid4().hex}.draft"
        draft.write_bytes(msgspec.json.encode(entry))
        flush(draft)
        try:
            os.link(draft, self._path(number))
        except FileExistsError:
            raise Conflict(
                f"commit {number} of the table in {self.local} was made by another"
            ) from None
        finally:
            draft.unlink()
        flush(self._log)

    def _forget(self, number: int) -> None:
        remove(self._path(old) for old in self._numbers() if old < number)
