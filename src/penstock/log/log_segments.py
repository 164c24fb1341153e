"""The segments of one log, ordered by base offset."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from penstock.base.errors import invariant
from penstock.log.index import AbortedTxn
from penstock.log.segment import LogSegment


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
