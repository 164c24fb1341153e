"""A rotation: data keys that an older version of their KEK has wrapped are wrapped by the latest.

Nothing that is encrypted changes, only the key files, and the lines in encrypted files that do
their duty (`sealed_file`). Each is replaced as a whole: a new one is written beside it and synced,
then renamed. What happens where, while a node runs:

| step | where |
|---|---|
| `outdated`: find them | thread |
| `prepare`: have some wrapped anew, write and sync the new files | thread |
| `put`: rename each, if the old one is still there as it was | loop, which owns the names |
| `sync`: make the names durable | thread |

A key file that was meanwhile removed or replaced (retention, compaction) stays as it is. A crash at
any point leaves the old or the new file; both unwrap to the same key, while the old version exists.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from penstock.base.errors import CorruptRecord, StorageError
from penstock.keys.data_keys import DataKeys
from penstock.keys.provider import KeyUnavailable
from penstock.log.files import TMP_SUFFIX, fsync_dir, unlink_if_exists, write_all
from penstock.log.key_file import KeyFile, read_key_file
from penstock.log.sealed_file import head_of, read_head
from penstock.log.segment_files import KEY_SUFFIX

AT_ONCE: Final = 256
"""Key files that are prepared together."""
SEALED_FILE_SUFFIX: Final = ".checkpoint"
_COPY_BYTES: Final = 1024 * 1024
_NEW_SUFFIX: Final = ".rewrapped" + TMP_SUFFIX


class Found(NamedTuple):
    """A key file, or an encrypted file with one inside."""

    path: str
    key_file: KeyFile


class Prepared(NamedTuple):
    """What is to replace the key file that was found."""

    found: Found
    new: KeyFile

    @property
    def new_path(self) -> str:
        return self.found.path + _NEW_SUFFIX


def key_files(directories: Iterable[str]) -> Iterator[Found]:
    """All that are in force in these partitions. One that is damaged is left out: it is an error
    where its log is opened.
    """
    for directory in directories:
        try:
            names = sorted(os.listdir(directory))
        except FileNotFoundError:
            continue  # deleted meanwhile
        for name in names:
            if name.endswith((KEY_SUFFIX, SEALED_FILE_SUFFIX)):
                path = os.path.join(directory, name)
                try:
                    key_file = _read(path)
                except StorageError:
                    continue
                if key_file is not None:
                    yield Found(path, key_file)


def _read(path: str) -> KeyFile | None:
    if path.endswith(KEY_SUFFIX):
        return read_key_file(path)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        head = read_head(fd, path)
        return None if head is None else head[0]
    finally:
        os.close(fd)


def outdated(directories: Iterable[str], keys: DataKeys) -> list[Found]:
    """Those that another version than the latest has wrapped; asks the provider for that."""
    latest: dict[str, int] = {}
    found = []
    for one in key_files(directories):
        key_id, version, _ = one.key_file.wrapped
        if key_id not in latest:
            latest[key_id] = keys.latest_version(key_id)
            keys.use_latest(key_id, latest[key_id])
        if version != latest[key_id]:
            found.append(one)
    return found


def prepare(some: Sequence[Found], keys: DataKeys) -> list[Prepared]:
    """Have them wrapped anew, and the new files on the disk beside the old ones."""
    prepared = []
    for one, secret in zip(some, keys.unwrap_all([f.key_file.wrapped for f in some]), strict=True):
        if isinstance(secret, KeyUnavailable):
            raise KeyUnavailable(f"{one.path} cannot be wrapped anew: {secret}")
        wrapped = keys.wrap(one.key_file.wrapped.key_id, secret)
        prepared.append(Prepared(one, one.key_file._replace(wrapped=wrapped)))
    for each in prepared:
        _write(each)
    return prepared


def _write(each: Prepared) -> None:
    path = each.found.path
    try:
        old = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # removed meanwhile: there is nothing to put in its place
    try:
        new = os.open(each.new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            if path.endswith(KEY_SUFFIX):
                write_all(new, each.new.text(), 0)
            else:
                _copy(old, new, path, each.new)
            os.fsync(new)
        finally:
            os.close(new)
    finally:
        os.close(old)


def _copy(old: int, new: int, path: str, key_file: KeyFile) -> None:
    """An encrypted file behind another head."""
    head = read_head(old, path)
    if head is None:
        raise CorruptRecord(f"{path} is not encrypted any more")
    to = head_of(key_file)
    write_all(new, to, 0)
    source, target = head[1], len(to)
    while piece := os.pread(old, _COPY_BYTES, source):
        write_all(new, piece, target)
        source += len(piece)
        target += len(piece)


def put(each: Prepared) -> bool:
    """Give the new file its name, if the old one is as it was; whether it did."""
    path = each.found.path
    try:
        if os.path.exists(each.new_path) and _read(path) == each.found.key_file:
            os.replace(each.new_path, path)
            return True
        unlink_if_exists(each.new_path)
    except OSError as e:
        raise StorageError(f"cannot replace {path}: {e}") from e
    return False


def sync(replaced: Iterable[Prepared]) -> None:
    """Make the new names durable."""
    for directory in {os.path.dirname(each.found.path) for each in replaced}:
        try:
            fsync_dir(directory)
        except FileNotFoundError:
            continue  # deleted meanwhile
