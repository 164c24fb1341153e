"""One segment of a log: a file of record batches with its indexes.

Only the last segment of a log is written to; the others are immutable. `size` is the end of the
good data: bytes beyond it (left by a write that failed and could not be cut off at once) are never
read and are cut before the next write. Positions and the order of batches are trusted here; CRCs
are checked where data is handed out (`LogSlice`) and by recovery. A segment is encrypted from its
first batch to its last, or not at all (`sealing`, `key_file`).

Owned by the loop's thread; a `LogSlice` may be read in any thread.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import TypeAlias

from penstock.base.errors import CorruptRecord, invariant
from penstock.base.ids import NO_TIMESTAMP
from penstock.log.batch_search import BatchPosition, corrupt_at, find_batch, headers_in
from penstock.log.files import FileCache, LogFile, unlink_if_exists
from penstock.log.index import IndexCache, OffsetIndex, TimeIndex, TransactionIndex
from penstock.log.key_file import KeyFile, write_key_file
from penstock.log.limits import INDEX_INTERVAL_BYTES_REBUILT, TAIL_BYTES_MAX, UNREAD_BYTES_MIN
from penstock.log.sealing import SEALED_MAGIC
from penstock.log.segment_files import (
    INDEX_SUFFIX,
    KEY_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_path,
)
from penstock.log.segment_write import SegmentWrite, write_buffers
from penstock.wire.records import MAGIC, BatchHeader

logger = logging.getLogger("penstock.log")

StagedBatch: TypeAlias = tuple[int, int, int]
"""What the indexes need to know of a batch: last offset, size, largest timestamp. A plain tuple,
since one is made for every append.
"""


class LogSegment:
    """A segment file and its three indexes."""

    __slots__ = (
        "_bytes_since_index",
        "_first_timestamp",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_ready_to_write",
        "_tail_is_dirty",
        "base_offset",
        "created_ms",
        "file",
        "hint_offset",
        "hint_position",
        "jitter_ms",
        "key_file",
        "key_id",
        "key_path",
        "offset_index",
        "size",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        log_dir: str,
        base_offset: int,
        files: FileCache,
        indexes: IndexCache,
        *,
        size: int,
        created_ms: int,
        jitter_ms: int = 0,
        suffix: str = "",
    ) -> None:
        """`suffix` ends the names of all files, until it is dropped."""
        self.base_offset = base_offset
        self.file = LogFile(segment_path(log_dir, base_offset, LOG_SUFFIX + suffix), files)
        index_path = segment_path(log_dir, base_offset, INDEX_SUFFIX + suffix)
        self.offset_index = OffsetIndex(index_path, base_offset, indexes)
        time_path = segment_path(log_dir, base_offset, TIME_INDEX_SUFFIX + suffix)
        self.time_index = TimeIndex(time_path, base_offset, indexes)
        txn_path = segment_path(log_dir, base_offset, TXN_INDEX_SUFFIX + suffix)
        self.txn_index = TransactionIndex(txn_path, base_offset)
        self.key_path = segment_path(log_dir, base_offset, KEY_SUFFIX + suffix)
        self.key_file: KeyFile | None = None
        """How the segment is encrypted, if it is."""
        self.key_id = ""
        self.size = size
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        # The batch boundary that readers at the tail ask for next: it saves the search.
        self.hint_offset = base_offset
        self.hint_position = 0
        self._bytes_since_index = 0
        self._first_timestamp: int | None = None
        self._max_timestamp: int | None = None if size else NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self._tail_is_dirty = False
        self._ready_to_write = False

    @classmethod
    def create(
        cls,
        log_dir: str,
        base_offset: int,
        files: FileCache,
        indexes: IndexCache,
        *,
        now_ms: int,
        jitter_ms: int = 0,
    ) -> LogSegment:
        """A new, empty segment on disk; what lies under its name (a failed attempt) is emptied."""
        path = segment_path(log_dir, base_offset, LOG_SUFFIX)
        unlink_if_exists(segment_path(log_dir, base_offset, KEY_SUFFIX))
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))
        segment = cls(
            log_dir, base_offset, files, indexes, size=0, created_ms=now_ms, jitter_ms=jitter_ms
        )
        segment.reset_indexes()
        return segment

    @property
    def first_timestamp(self) -> int:
        """The first batch's largest timestamp (-1: none), from which `segment.ms` is counted."""
        if self._first_timestamp is None:
            if not self.size:
                return NO_TIMESTAMP
            self._first_timestamp = next(self.headers()).max_timestamp
        return self._first_timestamp

    @property
    def max_timestamp(self) -> int:
        """The greatest timestamp (-1: none), from the time index after a start."""
        if self._max_timestamp is None:
            self._load_max_timestamp()
        return NO_TIMESTAMP if self._max_timestamp is None else self._max_timestamp

    def _load_max_timestamp(self) -> None:
        """Take the last entry of the time index, unless the data contradicts it.

        Retention deletes by this, so a damaged index must not decide.
        """
        try:
            timestamp, offset = self.time_index.peek_last()
            right = self._bears_out(timestamp, offset)
        except CorruptRecord:
            right = False
        if not right:
            logger.warning("rebuilding the indexes of %s: wrong time entries", self.file.path)
            self.rebuild_indexes(INDEX_INTERVAL_BYTES_REBUILT)
        elif self._max_timestamp is None:
            self._max_timestamp, self._max_timestamp_offset = timestamp, offset

    def _bears_out(self, timestamp: int, offset: int) -> bool:
        """Whether the batch that a time entry names is what the entry says."""
        if timestamp == NO_TIMESTAMP:
            return self.first_timestamp == NO_TIMESTAMP
        place = self.find(offset)
        if place is None:
            return False
        header = next(self.headers(place.position))
        return (header.last_offset, header.max_timestamp) == (offset, timestamp)

    def offset_before(self, timestamp: int) -> int:
        """An offset from which a search for `timestamp` may begin: all before it is older."""
        try:
            found, offset = self.time_index.lookup(timestamp)
            if found == NO_TIMESTAMP or self._bears_out(found, offset):
                return offset
            why = f"entry ({found}, {offset}) names no such batch"
        except CorruptRecord as e:
            why = str(e)
        logger.warning("rebuilding the index %s: %s", self.time_index.path, why)
        self.rebuild_indexes(INDEX_INTERVAL_BYTES_REBUILT)
        return self.time_index.lookup(timestamp)[1]

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the first batch that has `max_timestamp`."""
        _ = self.max_timestamp
        return self._max_timestamp_offset

    def note_timestamp(self, timestamp: int, offset: int) -> None:
        """Take a batch that ends at `offset` into the account of the largest timestamp."""
        if timestamp > self.max_timestamp:
            self._max_timestamp, self._max_timestamp_offset = timestamp, offset

    # Encryption

    def unlock(self, key_file: KeyFile, secret: bytes) -> None:
        """Its batches are encrypted, by that data key."""
        self.key_file = key_file
        self.key_id = key_file.wrapped.key_id
        self.file.seal = key_file.seal(secret)
        self.file.magic = SEALED_MAGIC

    def lock_with(self, key_file: KeyFile, secret: bytes) -> None:
        """Have the segment, which is empty, encrypted from now on."""
        invariant(not self.size, f"{self.file.path} holds data already")
        write_key_file(self.key_path, key_file)
        self.unlock(key_file, secret)

    def be_plain(self) -> None:
        """Have the segment, which is empty, not encrypted any more."""
        invariant(not self.size, f"{self.file.path} holds data already")
        self.key_file, self.key_id = None, ""
        self.file.seal, self.file.magic = None, MAGIC
        unlink_if_exists(self.key_path)

    # Writing

    def append(
        self,
        buffers: list[bytes | memoryview],
        total: int,
        batches: list[StagedBatch],
        first_offset: int,
        interval: int,
    ) -> None:
        """Write `batches` at the end; on OSError the file is as long as before. Their sizes, and
        `total`, are those that they have in the file.
        """
        if not self._ready_to_write:
            self._prepare()
        start = self.size
        file = self.file
        file.tail = None
        fd = file.pin()
        try:
            if self._tail_is_dirty:
                os.ftruncate(fd, start)
                self._tail_is_dirty = False
            seal = file.seal
            stored = buffers if seal is None else seal.sealed(buffers)
            data = write_buffers(fd, stored, total, start)
            if data is not None and total <= TAIL_BYTES_MAX:
                file.tail = data if seal is None else b"".join(buffers)
        except OSError:
            self._cut_back(fd)
            raise
        finally:
            file.unpin()
        file.wrote(start)
        self.hint_offset, self.hint_position = first_offset, start
        self._account(batches, start, interval)

    def begin_write(
        self, buffers: list[bytes | memoryview], total: int, position: int
    ) -> SegmentWrite:
        """An `append` in two halves: what is begun can be run in any thread, then `end_write`.

        `position` is where the data ends, or the write ends that was begun before this one. The
        file is pinned from now on.
        """
        if not self._ready_to_write:
            self._prepare()
        self.file.tail = None
        fd = self.file.pin()
        if self._tail_is_dirty:
            try:
                os.ftruncate(fd, self.size)
            except OSError:
                self.file.unpin()
                raise
            self._tail_is_dirty = False
        return SegmentWrite(fd, buffers, total, position, self.file.seal)

    def end_write(
        self, write: SegmentWrite, batches: list[StagedBatch], first_offset: int, interval: int
    ) -> None:
        """Make a finished write part of the segment; OSError if it failed: then cut it off."""
        if write.error is not None:
            raise write.error
        invariant(write.position == self.size, f"{self.file.path}: writes end in order")
        self.file.wrote(write.position)
        self.hint_offset, self.hint_position = first_offset, write.position
        self._account(batches, write.position, interval)

    def cut_back(self) -> None:
        """Cut off what was written beyond the end of the data."""
        self._tail_is_dirty = True
        fd = self.file.pin()
        try:
            self._cut_back(fd)
        finally:
            self.file.unpin()

    def _prepare(self) -> None:
        """Load what an append changes, so that nothing can fail once the data is written."""
        _ = self.max_timestamp
        self.offset_index.hold()
        self.time_index.hold()
        self._ready_to_write = True

    def _cut_back(self, fd: int) -> None:
        try:
            os.ftruncate(fd, self.size)
            self._tail_is_dirty = False
        except OSError:
            # Tried again before the next write; readers never look beyond `size`.
            self._tail_is_dirty = True

    def _account(self, batches: list[StagedBatch], position: int, interval: int) -> None:
        if not position:
            self._first_timestamp = batches[0][2]
        since = self._bytes_since_index
        highest = self.max_timestamp
        for last_offset, size, timestamp in batches:
            if timestamp > highest:
                self._max_timestamp = highest = timestamp
                self._max_timestamp_offset = last_offset
            if since > interval:
                self.offset_index.append(last_offset, position)
                self.time_index.maybe_append(highest, self._max_timestamp_offset)
                since = 0
            since += size
            position += size
        self._bytes_since_index = since
        self.size = position

    def index_batch(self, header: BatchHeader, position: int, interval: int) -> None:
        """Take one batch that is in the file already into the indexes (recovery)."""
        self.note_timestamp(header.max_timestamp, header.last_offset)
        if self._bytes_since_index > interval:
            self.offset_index.append(header.last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self._max_timestamp_offset)
            self._bytes_since_index = 0
        self._bytes_since_index += header.size

    def rebuild_indexes(self, interval: int) -> None:
        """Rebuild offset and time index from the headers (not the transaction index)."""
        self.offset_index.reset()
        self.time_index.reset()
        self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._bytes_since_index = 0
        position = 0
        for header in self.headers():
            self.index_batch(header, position, interval)
            position += header.size
        self.time_index.maybe_append(self.max_timestamp, self._max_timestamp_offset)
        try:
            self.flush_indexes()
        except OSError as e:
            # They are in memory, and a full disk must not prevent reads.
            logger.warning("cannot write the indexes of %s: %s", self.file.path, e)

    def rewind_to(self, offset: int) -> int:
        """Take the indexes back to `offset`, trusting the data below it; the position of the rest.

        `CorruptRecord` when indexes or data do not reach `offset`: then nothing can be trusted.
        """
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        indexed, start = self.offset_index.last_entry()
        first = find_batch(self.file, start, self.size, self.base_offset)
        place = find_batch(self.file, start, self.size, offset - 1)
        if first is None or place is None or (start and first.last_offset != indexed):
            raise corrupt_at(self.file, start, f"the way to offset {offset - 1} is not clear")
        position = place.position
        if place.base_offset < offset:
            position += place.size
        if position > self.size:
            raise corrupt_at(self.file, place.position, "the file ends in the middle of a batch")
        whole, self.size = self.size, position
        try:
            if not self._bears_out(*self.time_index.peek_last()):
                self.rebuild_indexes(INDEX_INTERVAL_BYTES_REBUILT)
            self._restore_max_timestamp()
        finally:
            self.size = whole
        self._bytes_since_index = 0
        return position

    def on_become_inactive(self) -> None:
        """Complete and write the indexes: nothing is appended any more, or not in this run."""
        if self.size:
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        self.flush_indexes()
        self.offset_index.let_go()
        self.time_index.let_go()
        self._ready_to_write = False

    def flush_indexes(self) -> None:
        self.offset_index.flush()
        self.time_index.flush()

    def reset_indexes(self, *, transactions: bool = True) -> None:
        """Empty the indexes, to fill them again from the data."""
        self.offset_index.reset()
        self.time_index.reset()
        if transactions:
            self.txn_index.reset()
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
        self._bytes_since_index = 0

    def truncate_to(self, offset: int) -> int:
        """Drop the batch that holds `offset` and all after it; where the data ends now."""
        found = self.find(offset)
        if found is None:
            return offset
        self.file.cut(found.position)
        self.size = found.position
        self._tail_is_dirty = False
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.hint_offset, self.hint_position = self.base_offset, 0
        self._bytes_since_index = 0
        self._first_timestamp = None
        self._restore_max_timestamp()
        return min(offset, found.base_offset)

    def _restore_max_timestamp(self) -> None:
        self._max_timestamp, self._max_timestamp_offset = self.time_index.peek_last()
        for batch in self.headers(self.offset_index.last_entry()[1]):
            self.note_timestamp(batch.max_timestamp, batch.last_offset)

    # Searching and reading

    def find(self, offset: int) -> BatchPosition | None:
        """The first batch whose last offset is at or above `offset`, or None beyond the end."""
        file, size = self.file, self.size
        if offset == self.hint_offset:
            return find_batch(file, self.hint_position, size, offset)
        try:
            indexed, position = self.offset_index.lookup_entry(offset)
            if not position:
                return find_batch(file, 0, size, offset)
            # An entry names the last offset of its batch, which is cheap to compare.
            at = find_batch(file, position, size, self.base_offset)
            if at is not None and at.last_offset == indexed:
                if indexed == offset:
                    return at
                return find_batch(file, position + at.size, size, offset)
        except CorruptRecord as e:
            why = str(e)
        else:
            why = f"entry ({indexed}, {position}) points to no such batch"
        logger.warning("rebuilding the index %s: %s", self.offset_index.path, why)
        self.rebuild_indexes(INDEX_INTERVAL_BYTES_REBUILT)
        return find_batch(file, self.offset_index.lookup(offset), size, offset)

    def unread_size(self, first: BatchPosition, room: int, limit: int) -> int:
        """How many of the `room` bytes from `first` on, extended up to `limit`, can be sent without
        a check: whole batches that were just written. 0 if they have to be read.
        """
        position = first.position
        if room < UNREAD_BYTES_MIN or not self.file.is_fresh(position) or self.key_id:
            return 0
        if position + room < limit:
            room = self.offset_index.floor_position(position + room) - position
        return room if room >= max(first.size, UNREAD_BYTES_MIN) else 0

    def headers(self, position: int = 0) -> Iterator[BatchHeader]:
        """The headers of all batches from the batch boundary `position` on."""
        return headers_in(self.file, position, self.size)

    def read_batch(self, batch: BatchPosition) -> bytes:
        """The bytes of one batch, unchecked if it is not encrypted."""
        data, seal = self.file.pread(batch.size, batch.position), self.file.seal
        return data if seal is None else seal.open_batch(data)

    def next_offset(self) -> int:
        """The offset after the last batch, found from the last index entry on."""
        last = self.base_offset - 1
        for header in self.headers(self.offset_index.last_entry()[1]):
            last = header.last_offset
        return last + 1

    # Files

    def paths(self) -> tuple[str, ...]:
        """The data first; the key file last, if there is one."""
        return (
            self.file.path,
            self.offset_index.path,
            self.time_index.path,
            self.txn_index.path,
            *((self.key_path,) if self.key_id else ()),
        )

    def add_suffix(self, suffix: str) -> None:
        """Rename the files; readers that hold the segment can continue."""
        self.file.rename(self.file.path + suffix)
        self._rename_key(self.key_path + suffix)
        for index in (self.offset_index, self.time_index, self.txn_index):
            index.rename(index.path + suffix)

    def drop_suffix(self, suffix: str) -> None:
        """Undo `add_suffix`: the offset index first, the data last (see `replacement`)."""
        for part in (self.offset_index, self.time_index, self.txn_index):
            part.rename(part.path.removesuffix(suffix))
        self._rename_key(self.key_path.removesuffix(suffix))
        self.file.rename(self.file.path.removesuffix(suffix))

    def _rename_key(self, path: str) -> None:
        if self.key_id:
            os.rename(self.key_path, path)
        self.key_path = path

    def move_to(self, log_dir: str) -> None:
        """Follow the files into a directory that was renamed."""
        for part in (self.file, self.offset_index, self.time_index, self.txn_index):
            part.path = os.path.join(log_dir, os.path.basename(part.path))
        self.key_path = os.path.join(log_dir, os.path.basename(self.key_path))

    def close(self) -> None:
        """Release descriptor and memory; the next use takes them again."""
        self.file.close()
        self.offset_index.cache.forget(self.offset_index)
        self.time_index.cache.forget(self.time_index)
        self.offset_index.unload()
        self.time_index.unload()

    def delete(self) -> None:
        """Remove the files."""
        self.close()
        for path in self.paths():
            unlink_if_exists(path)
