"""Offsets by time: which segment, which batch, which record.

Indexes are the loop's, so a search picks the segment and the position there and yields a `Walk`
over batches, which any thread may run: a batch can unpack to a thousand times its size, and a
producer can have batches claim times that none of their records has, or trim a segment so that all
headers behind the trim have to be read. A walk is tried on the loop for as long as it is short
(`Allowance`: uncompressed, and no more bytes than the allowance of the request), else it continues
in a worker thread.

`TimeLookups` drives searches: `LOOKUPS_AT_ONCE_MAX` walks at a time, each of which holds a batch
and what it unpacks to (`DECOMPRESSED_BATCH_BYTES_MAX`). What is found is the truth of one moment:
when the log was cut, or trimmed beyond the find, while a walk ran, the search begins anew. The
caller looks whether the partition is still its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from penstock.base.errors import CorruptRecord, StorageError
from penstock.base.ids import NO_TIMESTAMP
from penstock.log.batch_search import headers_in
from penstock.log.limits import LOOKUP_ON_LOOP_BYTES_MAX, LOOKUPS_AT_ONCE_MAX
from penstock.log.record_times import record_times
from penstock.log.segment import LogSegment
from penstock.wire.compression import Compression
from penstock.wire.records import HEADER_SIZE, BatchHeader, check_batch, parse_header

if TYPE_CHECKING:
    from penstock.log.log import Log

MAX_TIMESTAMP = -3
"""Asks for the first record that has the greatest timestamp of the log, as in ListOffsets."""

_PAUSE_S = 0.0001
_HEADERS_PER_PAUSE = 500


class TimestampOffset(NamedTuple):
    """A record found by its time."""

    timestamp: int
    offset: int
    leader_epoch: int


class Allowance:
    """What the look-ups of one request may still do on the loop."""

    __slots__ = ("left_bytes",)

    def __init__(self, left_bytes: int = LOOKUP_ON_LOOP_BYTES_MAX) -> None:
        self.left_bytes = left_bytes

    def take(self, size: int) -> bool:
        """Whether so much may still be done, in which case it is."""
        self.left_bytes -= size
        return self.left_bytes >= 0


class Walk:
    """From batch to batch of a segment, in one thread at a time."""

    __slots__ = ("_end", "_file", "_log_start", "_position", "_wanted", "error", "found", "newest")

    def __init__(
        self, segment: LogSegment, position: int, log_start: int, wanted: int | None
    ) -> None:
        """Look for the first record at or above the time `wanted` and the offset `log_start`, or
        with None for the newest time from there on.
        """
        self._file = segment.file
        self._position = position
        self._end = segment.size
        self._log_start = log_start
        self._wanted = wanted
        self.found: TimestampOffset | None = None
        self.newest = NO_TIMESTAMP
        self.error: StorageError | None = None
        self._file.pin()

    def close(self) -> None:
        self._file.unpin()

    def run(self, allowance: Allowance | None = None) -> bool:
        """Go on to the end, or for as long as there is allowance; whether that was the end."""
        pause = _no_pause if allowance is not None else _pause
        try:
            for i, header in enumerate(headers_in(self._file, self._position, self._end)):
                if i % _HEADERS_PER_PAUSE == 0:
                    pause()
                if allowance is not None and not _is_short(header, self._asks(header), allowance):
                    return False
                if self._asks(header):
                    self._look_into(header, pause)
                elif self._wanted is None:
                    self.newest = max(self.newest, header.max_timestamp)
                if self.found is not None:
                    break
                self._position += header.size
        except CorruptRecord as e:
            self.error = e
        except OSError as e:
            self.error = StorageError(f"cannot read {self._file.path}: {e}")
        return True

    def _asks(self, header: BatchHeader) -> bool:
        """Whether the records of the batch have to be read, and not only its header."""
        if self._wanted is None:
            return header.base_offset < self._log_start
        return header.max_timestamp >= self._wanted

    def _look_into(self, header: BatchHeader, pause: Callable[[], None]) -> None:
        for timestamp, offset in self._times(header, pause):
            if offset < self._log_start:
                continue
            self.newest = max(self.newest, timestamp)
            if self._wanted is not None and timestamp >= self._wanted:
                self.found = TimestampOffset(timestamp, offset, header.partition_leader_epoch)
                return

    def _times(self, header: BatchHeader, pause: Callable[[], None]) -> Iterator[tuple[int, int]]:
        data, seal = self._file.pread(header.size, self._position), self._file.seal
        try:
            if seal is not None:
                data = seal.open_batch(data)
                header = parse_header(data)
            else:
                check_batch(data)
            yield from record_times(data, header, pause)
        except CorruptRecord as e:
            raise CorruptRecord(f"{self._file.path} at position {self._position}: {e}") from e


def _is_short(header: BatchHeader, whole: bool, allowance: Allowance) -> bool:
    if not whole:
        return allowance.take(HEADER_SIZE)
    return header.compression is Compression.NONE and allowance.take(header.size)


def _pause() -> None:
    time.sleep(_PAUSE_S)


def _no_pause() -> None:
    pass


Search: TypeAlias = Generator[Walk, None, TimestampOffset | None]
"""Yields what has to be run before it continues."""


def search(log: Log, timestamp: int) -> Search:
    """The first record at or above the log start whose timestamp is at or above `timestamp`; with
    `MAX_TIMESTAMP` the first of those that have the greatest one.
    """
    if timestamp == MAX_TIMESTAMP:
        return _search_newest(log)
    return _search_from(log, timestamp)


def _search_from(log: Log, timestamp: int) -> Search:
    for segment in log.segments.from_offset(log.log_start_offset):
        if segment.max_timestamp < timestamp:
            continue
        start = max(segment.offset_before(timestamp), log.log_start_offset)
        found = yield from _first_in(segment, start, timestamp, log.log_start_offset)
        if found is not None:
            return found
    return None


def _search_newest(log: Log) -> Search:
    log_start = log.log_start_offset
    first, *others = log.segments.from_offset(log_start)
    best, timestamp = first, first.max_timestamp
    if first.base_offset < log_start:
        # Its beginning was trimmed, and perhaps its newest record with it.
        timestamp = yield from _newest_from(first, log_start)
    for segment in others:
        if segment.max_timestamp > timestamp:
            best, timestamp = segment, segment.max_timestamp
    if timestamp == NO_TIMESTAMP:
        return None
    start = log_start if best is first else best.max_timestamp_offset
    return (yield from _first_in(best, start, timestamp, log_start))


def _first_in(segment: LogSegment, start: int, timestamp: int, log_start: int) -> Search:
    place = segment.find(start)
    if place is None:
        return None
    walk = Walk(segment, place.position, log_start, timestamp)
    yield walk
    return walk.found


def _newest_from(segment: LogSegment, log_start: int) -> Generator[Walk, None, int]:
    place = segment.find(log_start)
    if place is None:
        return NO_TIMESTAMP
    walk = Walk(segment, place.position, log_start, None)
    yield walk
    return walk.newest


def timestamp_at(log: Log, offset: int) -> int | None:
    """The time of the first batch that ends at or above `offset`: that of its first record, or its
    append time. Reads one header, whatever the batch's size; None where there is no such batch.
    """
    for segment in log.segments.from_offset(offset):
        place = segment.find(offset)
        if place is not None:
            header = next(segment.headers(place.position))
            return header.max_timestamp if header.log_append_time else header.base_timestamp
    return None


class TimeLookups:
    """The searches of a node. Owned by the event loop's thread."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(LOOKUPS_AT_ONCE_MAX)

    async def find(self, log: Log, timestamp: int, allowance: Allowance) -> TimestampOffset | None:
        """What `search` finds; `StorageError` when the log cannot be read there."""
        while True:
            cuts = log.cuts
            try:
                found = await self._drive(search(log, timestamp), allowance)
            except StorageError:
                if log.cuts == cuts:
                    raise
                continue  # the data was cut off while it was read
            except OSError as e:
                raise StorageError(f"cannot read {log.name}: {e}") from e
            trimmed = found is not None and found.offset < log.log_start_offset
            if log.cuts == cuts and not trimmed:
                return found

    async def _drive(self, steps: Search, allowance: Allowance) -> TimestampOffset | None:
        try:
            while True:
                walk = next(steps)
                try:
                    if not walk.run(allowance):
                        await self._run_beside(walk)
                finally:
                    walk.close()
                if walk.error is not None:
                    raise walk.error
        except StopIteration as end:
            found: TimestampOffset | None = end.value
            return found

    async def _run_beside(self, walk: Walk) -> None:
        async with self._turns:
            await asyncio.get_running_loop().run_in_executor(None, walk.run)
