"""The indexes of a segment, in Kafka's formats.

* `.index` (`OffsetIndex`): 8-byte entries (offset - base offset, position), both 32 bits. An entry
  names the last offset of the batch at that position.
* `.timeindex` (`TimeIndex`): 12-byte entries (timestamp, offset - base offset): no record before
  the batch that ends at this offset has a greater timestamp.
* `.txnindex` (`TransactionIndex`): 34-byte entries, one per aborted transaction; most segments
  have no such file.

New entries stay in memory until `flush` (on roll, on a flush of the log, on close): a crash costs
no more than the rebuild of the indexes of the segments above the recovery point, which are scanned
anyway. Nothing is read before the first lookup. Entries of closed segments live in an `IndexCache`
of bounded size and are read again when they were dropped; no file stays open.

Owned by the loop's thread, like the log.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from penstock.base.errors import CorruptRecord, invariant
from penstock.base.ids import NO_TIMESTAMP
from penstock.log.files import unlink_if_exists, write_all, write_atomically
from penstock.log.limits import INDEX_CACHE_BYTES_MAX

_TIME_ENTRY: Final = Struct(">qI")
_ABORTED_TXN: Final = Struct(">hqqqq")


class IndexCache:
    """Bounds the memory of indexes that can be read again from their files."""

    __slots__ = ("_loaded", "limit", "size_bytes")

    def __init__(self, limit: int = INDEX_CACHE_BYTES_MAX) -> None:
        self.limit = limit
        self.size_bytes = 0
        self._loaded: OrderedDict[_Index, int] = OrderedDict()

    def touch(self, index: _Index) -> None:
        """Note a use; indexes that have unwritten entries are kept until they are flushed."""
        size = index.entries * index.ENTRY_SIZE
        self.size_bytes += size - self._loaded.get(index, 0)
        self._loaded[index] = size
        self._loaded.move_to_end(index)
        while self.size_bytes > self.limit and len(self._loaded) > 1:
            oldest, size = self._loaded.popitem(last=False)
            self.size_bytes -= size
            oldest.unload()

    def forget(self, index: _Index) -> None:
        self.size_bytes -= self._loaded.pop(index, 0)


class _Index(ABC):
    """What the offset and the time index share: a file of fixed-size entries, read on first use."""

    __slots__ = ("_held", "_loaded", "_written", "base_offset", "cache", "entries", "path")

    ENTRY_SIZE: ClassVar[int] = 0

    def __init__(self, path: str, base_offset: int, cache: IndexCache) -> None:
        self.path = path
        self.base_offset = base_offset
        self.cache = cache
        self.entries = 0
        self._written = 0
        self._loaded = False
        self._held = False

    def hold(self) -> None:
        """Load the entries and keep them in memory: the segment is being written to."""
        if not self._loaded:
            self.load()
        self._held = True

    def let_go(self) -> None:
        """The entries may be dropped from memory again."""
        self._held = False

    def load(self) -> None:
        """Bring the entries into memory; a missing file has none."""
        try:
            with open(self.path, "rb") as f:
                data = f.read()
        except FileNotFoundError:
            data = b""
        if len(data) % self.ENTRY_SIZE:
            raise CorruptRecord(
                f"{self.path} has {len(data)} bytes, not a multiple of {self.ENTRY_SIZE}"
            )
        self.entries = self._written = len(data) // self.ENTRY_SIZE
        self._parse(data)
        self._loaded = True

    def unload(self) -> None:
        """Free the memory; nothing happens while entries are unwritten or held."""
        if self._loaded and not self._held and self._written == self.entries:
            self._loaded = False
            self._parse(b"")

    def flush(self) -> None:
        """Write the entries that are only in memory (without fsync)."""
        if self._written == self.entries:
            return
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            write_all(fd, self._pack_from(self._written), self._written * self.ENTRY_SIZE)
        finally:
            os.close(fd)
        self._written = self.entries

    def reset(self) -> None:
        """Drop all entries, in memory and on disk, to rebuild the index."""
        self._parse(b"")
        self.entries = self._written = 0
        self._loaded = True
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        os.close(fd)

    def delete(self) -> None:
        self.cache.forget(self)
        unlink_if_exists(self.path)

    def rename(self, new_path: str) -> None:
        if os.path.exists(self.path):
            os.rename(self.path, new_path)
        self.path = new_path

    def _cut(self, entries: int) -> None:
        """Keep the first `entries` entries."""
        if entries >= self.entries:
            return
        self._drop_after(entries)
        self.entries = entries
        if self._written > entries:
            os.truncate(self.path, entries * self.ENTRY_SIZE)
            self._written = entries

    @abstractmethod
    def _parse(self, data: bytes) -> None:
        """Take the entries of the file in."""

    @abstractmethod
    def _pack_from(self, entry: int) -> bytes | bytearray:
        """The entries from the given one on, as they lie in the file."""

    @abstractmethod
    def _drop_after(self, entries: int) -> None:
        """Forget all but the first `entries` entries."""


class OffsetIndex(_Index):
    """Offset -> position; held as two native arrays so that the search is one `bisect` in C."""

    __slots__ = ("_offsets", "_positions")

    ENTRY_SIZE: ClassVar[int] = 8

    def __init__(self, path: str, base_offset: int, cache: IndexCache) -> None:
        super().__init__(path, base_offset, cache)
        self._offsets = array("I")
        self._positions = array("I")

    def _parse(self, data: bytes) -> None:
        words = array("I", data)
        if sys.byteorder == "little":
            words.byteswap()
        self._offsets = words[0::2]
        self._positions = words[1::2]

    def _pack_from(self, entry: int) -> bytes:
        words = array("I", bytes(8 * (self.entries - entry)))
        words[0::2] = self._offsets[entry:]
        words[1::2] = self._positions[entry:]
        if sys.byteorder == "little":
            words.byteswap()
        return words.tobytes()

    def _drop_after(self, entries: int) -> None:
        del self._offsets[entries:]
        del self._positions[entries:]

    def append(self, offset: int, position: int) -> None:
        """Note that the batch at `position` ends with `offset`."""
        if not self._loaded:
            self.load()
        self._offsets.append(offset - self.base_offset)
        self._positions.append(position)
        self.entries += 1

    def lookup(self, offset: int) -> int:
        """A position at or before that of the batch that holds `offset`: a search starts there."""
        return self.lookup_entry(offset)[1]

    def lookup_entry(self, offset: int) -> tuple[int, int]:
        """The last entry (offset, position) at or below `offset`; (base offset, 0) without one."""
        if not self._loaded:
            self.load()
        self.cache.touch(self)
        i = bisect_right(self._offsets, offset - self.base_offset)
        if not i:
            return self.base_offset, 0
        return self.base_offset + self._offsets[i - 1], self._positions[i - 1]

    def offset_from(self, position: int) -> int | None:
        """An offset above all batches that begin before `position`; None if no entry has one."""
        if not self._loaded:
            self.load()
        i = bisect_left(self._positions, position)
        return self.base_offset + self._offsets[i] if i < self.entries else None

    def floor_position(self, position: int) -> int:
        """The last start of a batch at or before `position` that an entry has; else 0."""
        if not self._loaded:
            self.load()
        i = bisect_right(self._positions, position)
        return self._positions[i - 1] if i else 0

    def last_entry(self) -> tuple[int, int]:
        """(offset, position) of the last entry; (base offset, 0) when there is none."""
        if not self._loaded:
            self.load()
        if not self.entries:
            return self.base_offset, 0
        return self.base_offset + self._offsets[-1], self._positions[-1]

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above `offset`."""
        if not self._loaded:
            self.load()
        relative = offset - self.base_offset
        self._cut(bisect_right(self._offsets, relative - 1) if relative > 0 else 0)

    def sanity_check(self, log_size: int) -> None:
        """Raise `CorruptRecord` when the last entry does not fit a segment of `log_size` bytes."""
        offset, position = self.last_entry()
        if position and not (position < log_size and self._offsets[0] <= offset - self.base_offset):
            raise CorruptRecord(
                f"{self.path}: last entry (offset {offset}, position {position}) does not fit a "
                f"segment of {log_size} bytes"
            )


class TimeIndex(_Index):
    """Timestamp -> offset; held as its bytes, since it is searched rarely."""

    __slots__ = ("_data", "last_offset", "last_timestamp")

    ENTRY_SIZE: ClassVar[int] = 12

    def __init__(self, path: str, base_offset: int, cache: IndexCache) -> None:
        super().__init__(path, base_offset, cache)
        self._data = bytearray()
        self.last_timestamp = NO_TIMESTAMP
        self.last_offset = base_offset

    def _parse(self, data: bytes) -> None:
        self._data = bytearray(data)
        if data:
            self._note_last()
        elif not self.entries:
            self.last_timestamp, self.last_offset = NO_TIMESTAMP, self.base_offset

    def _note_last(self) -> None:
        if self._data:
            self.last_timestamp, relative = _TIME_ENTRY.unpack_from(
                self._data, len(self._data) - 12
            )
            self.last_offset = self.base_offset + relative
        else:
            self.last_timestamp, self.last_offset = NO_TIMESTAMP, self.base_offset

    def _pack_from(self, entry: int) -> bytearray:
        return self._data[12 * entry :]

    def _drop_after(self, entries: int) -> None:
        del self._data[12 * entries :]
        self._note_last()

    def reset(self) -> None:
        super().reset()
        self._note_last()

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if `timestamp` is greater than the last one's."""
        if not self._loaded:
            self.load()
        if timestamp > self.last_timestamp:
            invariant(offset >= self.last_offset, f"{self.path}: offsets of time entries must rise")
            self._data += _TIME_ENTRY.pack(timestamp, offset - self.base_offset)
            self.entries += 1
            self.last_timestamp, self.last_offset = timestamp, offset

    def peek_last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry without loading the others; (-1, base) without one.

        `CorruptRecord` when the file cannot be a time index.
        """
        if self._loaded:
            return self.last_timestamp, self.last_offset
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return NO_TIMESTAMP, self.base_offset
        try:
            size = os.fstat(fd).st_size
            if not size:
                return NO_TIMESTAMP, self.base_offset
            first, last = os.pread(fd, 12, 0), os.pread(fd, 12, max(size - 12, 0))
        finally:
            os.close(fd)
        if size % 12 or (size > 12 and first[:8] >= last[:8]):
            raise CorruptRecord(f"{self.path}: timestamps do not rise")
        timestamp, relative = _TIME_ENTRY.unpack(last)
        return timestamp, self.base_offset + relative

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The last entry (timestamp, offset) below `timestamp`; (-1, base offset) without one.

        Every record before the batch that ends at this offset is older than `timestamp`.
        """
        if not self._loaded:
            self.load()
        self.cache.touch(self)
        data, low, high = self._data, 0, self.entries
        while low < high:
            middle = (low + high) // 2
            if _TIME_ENTRY.unpack_from(data, 12 * middle)[0] < timestamp:
                low = middle + 1
            else:
                high = middle
        if not low:
            return NO_TIMESTAMP, self.base_offset
        found, relative = _TIME_ENTRY.unpack_from(data, 12 * (low - 1))
        return found, self.base_offset + relative

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above `offset`."""
        if not self._loaded:
            self.load()
        n = self.entries
        while (
            n and self.base_offset + _TIME_ENTRY.unpack_from(self._data, 12 * (n - 1))[1] >= offset
        ):
            n -= 1
        self._cut(n)

    def sanity_check(self) -> None:
        """Raise `CorruptRecord` when the last entry contradicts the first."""
        if not self._loaded:
            self.load()
        if self.entries:
            first = _TIME_ENTRY.unpack_from(self._data, 0)[0]
            if self.last_timestamp < first or self.last_offset < self.base_offset:
                raise CorruptRecord(f"{self.path}: timestamps do not rise")


class AbortedTxn(NamedTuple):
    """An aborted transaction; `last_offset` is that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def _marker_offset(txn: AbortedTxn) -> int:
    return txn.last_offset


class TransactionIndex:
    """The aborted transactions whose markers lie in the segment, in the order of the markers."""

    __slots__ = ("_rebuilding", "_txns", "base_offset", "dirty", "path")

    def __init__(self, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.dirty = False
        """Whether entries were added since the last flush."""
        self._rebuilding = False
        self._txns: list[AbortedTxn] | None = None

    def all(self) -> list[AbortedTxn]:
        if self._txns is None:
            try:
                with open(self.path, "rb") as f:
                    data = f.read()
            except FileNotFoundError:
                data = b""
            if len(data) % _ABORTED_TXN.size:
                raise CorruptRecord(f"{self.path} ends in the middle of an entry")
            self._txns = []
            for version, *fields in _ABORTED_TXN.iter_unpack(data):
                txn = AbortedTxn(*fields)
                if version != 0 or txn.last_offset < self.base_offset:
                    raise CorruptRecord(f"{self.path} holds an impossible entry {txn}")
                self._txns.append(txn)
        return self._txns

    def append(self, txn: AbortedTxn) -> None:
        """Add an entry, on disk at once: a rebuild would need the whole transaction."""
        txns = self.all()
        if self._rebuilding:
            txns.append(txn)
            return
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            write_all(fd, _ABORTED_TXN.pack(0, *txn), len(txns) * _ABORTED_TXN.size)
        finally:
            os.close(fd)
        txns.append(txn)
        self.dirty = True

    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTxn], bool]:
        """Those that overlap [fetch_offset, upper_bound), and whether the search is complete."""
        found = []
        txns = self.all()
        for i in range(bisect_left(txns, fetch_offset, key=_marker_offset), len(txns)):
            txn = txns[i]
            if txn.first_offset < upper_bound:
                found.append(txn)
            if txn.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Drop the entries whose markers lie at or above `offset`."""
        txns = self.all()
        keep = [t for t in txns if t.last_offset < offset]
        if len(keep) < len(txns):
            os.truncate(self.path, len(keep) * _ABORTED_TXN.size)
            self._txns = keep

    def reset(self) -> None:
        self._txns = []
        unlink_if_exists(self.path)

    def begin_rebuild(self) -> None:
        """Collect all entries anew, in memory. A recovery point above them vouches for the file:
        until `end_rebuild` it stays as it is, so that a crash leaves it as damaged as it was found.
        """
        self._txns = []
        self._rebuilding = True

    def end_rebuild(self) -> None:
        """Replace the file by what was collected, durably."""
        data = b"".join(_ABORTED_TXN.pack(0, *txn) for txn in self.all())
        write_atomically(self.path, data)
        self._rebuilding = False

    def rename(self, new_path: str) -> None:
        if os.path.exists(self.path):
            os.rename(self.path, new_path)
        self.path = new_path
