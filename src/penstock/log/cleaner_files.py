"""The files of a cleaning: segments that are read, and the `.cleaned` ones that are written.

Duty: `read_batches` gives the checked batches of an immutable segment; `CleanedSegment` writes a
new one with its indexes under names ending in `.cleaned`, which a log that is opened after a
crash removes.

Invariants: no batch leaves `read_batches` whose CRC is wrong; a `CleanedSegment` that `finish`
returned from is on disk with all its indexes.

Runs in the cleaner's child process; `remove_cleaned` also in the broker, after a child was lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from struct import Struct

from penstock.base.errors import CorruptRecord, invariant
from penstock.base.ids import NO_TIMESTAMP
from penstock.log.cleaner_filter import Kept
from penstock.log.files import fsync_path, unlink_if_exists, write_all
from penstock.log.index import AbortedTxn, IndexCache, OffsetIndex, TimeIndex, TransactionIndex
from penstock.log.key_file import KeyFile, write_key_file
from penstock.log.limits import RELATIVE_OFFSET_MAX
from penstock.log.sealing import Seal
from penstock.log.segment_files import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    KEY_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_path,
)
from penstock.wire.records import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, check_batch

CHUNK_BYTES = 1024 * 1024
"""Read at once, and gathered before a write; a larger batch is read alone."""

_LENGTH_AT = 8
_LENGTH = Struct(">i")

Pause = Callable[[int], None]
"""Called with every number of bytes read or written; may sleep, and raises to end the cleaning."""


def read_batches(
    path: str, size: int, position: int, pause: Pause, seal: Seal | None = None
) -> Iterator[tuple[BatchHeader, bytes]]:
    """Header and bytes of every batch from `position` to `size`, each checked, and decrypted by
    `seal` if it is encrypted.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        want = CHUNK_BYTES
        while position < size:
            want = min(want, size - position)
            chunk = os.pread(fd, want, position)
            if len(chunk) < want:
                raise CorruptRecord(f"{path} ends before its {size} bytes")
            pause(want)
            pos = 0
            try:
                while (batch_size := _whole_batch(chunk, pos)) > 0:
                    batch = chunk[pos : pos + batch_size]
                    if seal is not None:
                        batch = seal.open_batch(batch)
                    yield check_batch(batch), batch
                    pos += batch_size
            except CorruptRecord as e:
                raise CorruptRecord(f"{path}, from position {position}: {e}") from e
            if not pos and position - batch_size > size:
                raise CorruptRecord(f"{path}: the batch at position {position} is cut off")
            want = CHUNK_BYTES if pos else -batch_size
            position += pos
    finally:
        os.close(fd)


def _whole_batch(chunk: bytes, pos: int) -> int:
    """Size of the batch at `pos`; negative: the size that would have to be there."""
    left = len(chunk) - pos
    if left < HEADER_SIZE:
        return -HEADER_SIZE
    size: int = _LENGTH.unpack_from(chunk, pos + _LENGTH_AT)[0] + LOG_OVERHEAD
    if size < HEADER_SIZE:
        raise CorruptRecord(f"batch at byte {pos} claims to be {size} bytes long")
    return size if size <= left else -size


class CleanedSegment:
    """A segment in the making, under its `.cleaned` names."""

    __slots__ = (
        "_directory",
        "_fd",
        "_interval",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offset_index",
        "_path",
        "_pending",
        "_pending_bytes",
        "_seal",
        "_since_index",
        "_time_index",
        "_txn_index",
        "_written",
        "base_offset",
    )

    def __init__(
        self,
        directory: str,
        base_offset: int,
        index_interval_bytes: int,
        key: tuple[KeyFile, Seal] | None = None,
    ) -> None:
        """With a `key` it is encrypted."""
        self.base_offset = base_offset
        self._seal = None
        if key is not None:
            key_file, self._seal = key
            write_key_file(_cleaned_path(directory, base_offset, KEY_SUFFIX), key_file)
        self._directory = directory
        self._interval = index_interval_bytes
        self._path = _cleaned_path(directory, base_offset, LOG_SUFFIX)
        cache = IndexCache()
        path = _cleaned_path(directory, base_offset, INDEX_SUFFIX)
        self._offset_index = OffsetIndex(path, base_offset, cache)
        path = _cleaned_path(directory, base_offset, TIME_INDEX_SUFFIX)
        self._time_index = TimeIndex(path, base_offset, cache)
        path = _cleaned_path(directory, base_offset, TXN_INDEX_SUFFIX)
        self._txn_index = TransactionIndex(path, base_offset)
        self._pending: list[bytes] = []
        self._pending_bytes = self._written = self._since_index = 0
        self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, base_offset
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        for index in (self._offset_index, self._time_index, self._txn_index):
            index.reset()

    @property
    def size_bytes(self) -> int:
        return self._written + self._pending_bytes

    def append(self, kept: Kept, pause: Pause) -> None:
        """Add what stays of a batch."""
        invariant(
            kept.last_offset - self.base_offset <= RELATIVE_OFFSET_MAX,
            f"{self._path}: offset {kept.last_offset} is too far from the base offset",
        )
        if kept.max_timestamp > self._max_timestamp:
            self._max_timestamp = kept.max_timestamp
            self._max_timestamp_offset = kept.last_offset
        if self._since_index > self._interval:
            self._offset_index.append(kept.last_offset, self.size_bytes)
            self._time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset)
            self._since_index = 0
        data = kept.data if self._seal is None else self._seal.seal_batch(kept.data)
        size = len(data)
        self._since_index += size
        self._pending.append(data)
        self._pending_bytes += size
        if self._pending_bytes >= CHUNK_BYTES:
            self._write(pause)

    def add_aborted(self, txn: AbortedTxn) -> None:
        """Note an aborted transaction whose marker lies in this segment."""
        self._txn_index.append(txn)

    def _write(self, pause: Pause) -> None:
        write_all(self._fd, b"".join(self._pending), self._written)
        self._written += self._pending_bytes
        pause(self._pending_bytes)
        self._pending, self._pending_bytes = [], 0

    def finish(self, modified_ns: int, pause: Pause) -> int:
        """Complete and sync everything; the size in bytes."""
        self._write(pause)
        self._time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset)
        self._offset_index.flush()
        self._time_index.flush()
        # Retention of records without timestamps goes by the age of the file.
        os.utime(self._fd, ns=(modified_ns, modified_ns))
        os.fsync(self._fd)
        self.close()
        for path in (
            *(i.path for i in (self._offset_index, self._time_index, self._txn_index)),
            _cleaned_path(self._directory, self.base_offset, KEY_SUFFIX),
        ):
            fsync_path(path)
        return self._written

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _cleaned_path(directory: str, base_offset: int, suffix: str) -> str:
    return segment_path(directory, base_offset, suffix) + CLEANED_SUFFIX


def remove_cleaned(directory: str) -> None:
    """Remove what an unfinished cleaning left; a directory that is gone has nothing left."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    for name in names:
        if name.endswith(CLEANED_SUFFIX):
            unlink_if_exists(os.path.join(directory, name))
