"""The segments of one log, ordered by base offset, and the ranges of them that a fetch sends."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator

from penstock.base.errors import CorruptRecord, invariant
from penstock.log.index import AbortedTxn
from penstock.log.segment import LogSegment
from penstock.log.slice import LogSlice


class LogSegments:
    """A sorted list; the last one is the active segment, which is the only one written to."""

    __slots__ = ("_bases", "_segments", "active")

    active: LogSegment

    def __init__(self, segments: Iterable[LogSegment] = ()) -> None:
        self._segments: list[LogSegment] = []
        self._bases: list[int] = []
        for segment in segments:
            self.add(segment)

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    def __getitem__(self, i: int) -> LogSegment:
        return self._segments[i]

    @property
    def base_offsets(self) -> list[int]:
        return self._bases

    def add(self, segment: LogSegment) -> None:
        """Put a segment in its place; one with the same base offset is replaced."""
        i = bisect_left(self._bases, segment.base_offset)
        if i < len(self._bases) and self._bases[i] == segment.base_offset:
            self._segments[i] = segment
        else:
            self._segments.insert(i, segment)
            self._bases.insert(i, segment.base_offset)
        self.active = self._segments[-1]

    def remove(self, segment: LogSegment) -> None:
        i = bisect_left(self._bases, segment.base_offset)
        invariant(self._segments[i] is segment, f"no such segment: {segment.file.path}")
        del self._segments[i]
        del self._bases[i]
        if self._segments:
            self.active = self._segments[-1]

    def floor_index(self, offset: int) -> int:
        """The place of the segment in which `offset` would lie (the first if it is below all)."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def from_offset(self, offset: int) -> list[LogSegment]:
        """The segment in which `offset` would lie and all after it."""
        return self._segments[self.floor_index(offset) :]

    def aborted_transactions(self, fetch_offset: int, upper_bound: int) -> list[AbortedTxn]:
        """The aborted transactions that overlap [fetch_offset, upper_bound)."""
        found: list[AbortedTxn] = []
        for segment in self.from_offset(fetch_offset):
            txns, complete = segment.txn_index.collect(fetch_offset, upper_bound)
            found += txns
            if complete:
                break
        return found

    def end_of(self, i: int, log_end_offset: int) -> int:
        """The offset at which segment `i` ends."""
        return self._bases[i + 1] if i + 1 < len(self._bases) else log_end_offset

    # Reading

    def slice_from(
        self,
        offset: int,
        max_bytes: int,
        log_end_offset: int,
        up_to_offset: int,
        min_one: bool,
        on_corrupt: Callable[[CorruptRecord], None],
    ) -> LogSlice | None:
        """The batches from the one that holds `offset` on, below `up_to_offset`, of one segment; at
        most `max_bytes`, but with `min_one` the first batch whole.
        """
        active = self.active
        tail = active.file.tail
        if (
            tail is not None
            and offset == active.hint_offset
            and up_to_offset >= log_end_offset
            and len(tail) <= max_bytes
        ):
            # The last write, for a reader that has read everything before it.
            position = active.hint_position
            size = active.size - position
            return LogSlice(active.file, position, size, offset, log_end_offset, on_corrupt, tail)
        for i in range(self.floor_index(offset), len(self._segments)):
            segment = self._segments[i]
            found = segment.find(offset)
            if found is None:
                continue
            if found.base_offset >= up_to_offset:
                return None
            limit = segment.size
            if up_to_offset < self.end_of(i, log_end_offset):
                bound = segment.find(up_to_offset)
                limit = bound.position if bound is not None else limit
            room = limit - found.position
            if room > max_bytes:
                room = max(max_bytes, min(found.size, room)) if min_one else max_bytes
            unread = segment.unread_size(found, room, limit)
            return LogSlice(
                segment.file,
                found.position,
                unread or room,
                found.base_offset,
                found.base_offset,
                on_corrupt,
                room=room,
                fresh=unread > 0,
            )
        return None

    def offset_above(self, found: LogSlice, log_end_offset: int) -> int:
        """An offset above all that `found` holds, as close as the index allows without reading
        data.
        """
        i = self.floor_index(found.base_offset)
        end = self._segments[i].offset_index.offset_from(found.position + found.size)
        return self.end_of(i, log_end_offset) if end is None else end
