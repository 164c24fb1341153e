"""One acquisition: which of the records that were read a member gets.

Records that are free again come first, batch by batch, then those that nobody has had. What lies
between the record batches that were read is not in the log any more: it is archived, or filled in
as archived where the window grows.

A member gets `quota` records. With AcquireMode.BATCH_OPTIMIZED the record batch of the log in which
the quota is reached is given whole, unless that is more than `beyond` records more; what is new is
divided into batches of about `batch_size`. With AcquireMode.RECORD_LIMIT the quota is exact, and
the rest of that record batch stays free.

A batch whose records were delivered often is divided (`isolation.py`), and nothing else is given
along with it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from penstock.share import isolation
from penstock.share.changes import OffsetRange
from penstock.share.values import Acquired, AcquireMode
from penstock.share.window import ACQUIRED, ARCHIVED, AVAILABLE, UNSEEN, Window

WINDOW_SPAN_MAX: Final = 100_000
"""Records of a window at which it grows no more, but for those that are done and folded; the last
record batch may go beyond.
"""

NO_LIMIT: Final = 2**63 - 1
_LAST_OFFSET_MAX: Final = 2**63 - 1


def stretches_and_gaps(
    batches: Sequence[OffsetRange], fetch_offset: int
) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """The record batches that were read, joined where nothing is missing, and what is missing."""
    stretches: list[OffsetRange] = []
    gaps: list[OffsetRange] = []
    begin, expected = batches[0][0], fetch_offset
    for base, last in batches:
        if base > expected:
            gaps.append((expected, base - 1))
            if expected > begin:
                stretches.append((begin, expected - 1))
            begin = base
        expected = last + 1
    stretches.append((begin, expected - 1))
    return stretches, gaps


def without(acquired: Sequence[Acquired], ranges: Sequence[OffsetRange]) -> list[Acquired]:
    """What was acquired less what was archived then; ranges are ascending."""
    left: list[Acquired] = []
    for first, last, count in acquired:
        for range_first, range_last in ranges:
            if range_last < first or range_first > last:
                continue
            if range_first > first:
                left.append(Acquired(first, range_first - 1, count))
            first = range_last + 1
        if first <= last:
            left.append(Acquired(first, last, count))
    return left


class Acquiring:
    """The state of one acquisition."""

    def __init__(
        self,
        window: Window,
        lock: int,
        delivery_count_limit: int,
        batches: Sequence[OffsetRange],
        quota: int,
        beyond: int,
        batch_size: int,
        mode: AcquireMode,
    ) -> None:
        self._window = window
        self._lock = lock
        self._limit = delivery_count_limit
        self._batches = batches
        self._left = quota
        self._beyond = beyond
        self._batch_size = batch_size
        self._whole_batches = mode is AcquireMode.BATCH_OPTIMIZED
        self._end = 0
        """Where records that are free again end, for this acquisition."""
        self._alone = False
        """What was given may not be given along with anything else."""
        self.acquired: list[Acquired] = []
        self.missing: list[OffsetRange] = []
        """What was filled in as archived."""

    def run(self, stretches: list[OffsetRange], room: int) -> None:
        """`room`: how many records the window may grow by."""
        window = self._window
        begin, self._end = window.clip(stretches[0][0], stretches[-1][1])
        while not self._alone and (found := window.next_open(begin, self._end)) is not None:
            if window.states[found] == UNSEEN:
                begin = self._take_unseen(found)
            else:
                begin = self._take_again(found)
        if not self._alone and self._left > 0 and room > 0:
            self._grow(stretches, room)

    def _take_again(self, begin: int) -> int:
        """Free records of one batch; returns where the next one begins."""
        window = self._window
        batch_begin, batch_end = window.batch(begin)
        free = [
            run
            for first, stop, state in window.state_runs(begin, min(batch_end, self._end))
            if state == AVAILABLE
            for run in window.count_runs(first, stop)
        ]
        if max(count for _, _, count in free) >= isolation.threshold(self._limit):
            self._alone = True
            if self.acquired:
                return batch_end
            size = window.batch_size(batch_begin, batch_end)
            free = isolation.apart(free, size, self._limit)
        for first, stop, count in free:
            stop = self._within_quota(first, min(stop, self._end))
            if first < stop:
                self._take(first, stop, AVAILABLE, count)
        return batch_end

    def _take_unseen(self, begin: int) -> int:
        """Records between those that were loaded; returns where they end."""
        window = self._window
        end = next(window.state_runs(begin, self._end))[1]
        first, last = window.offset(begin), window.offset(end) - 1
        if self._left <= end - begin:
            last = min(last, self._rounded(first + self._left - 1))
            self._end = window.position(last) + 1
        self._take_new(first, last, self._left)
        window.begin_batch(window.position(last) + 1)
        return end

    def _grow(self, stretches: list[OffsetRange], room: int) -> None:
        """Records that nobody has had, at the end of the window."""
        window = self._window
        for first, last in stretches:
            first = max(first, window.end + 1)
            if first > last:
                continue
            missing = first - window.end - 1
            quota = min(self._left, room)
            if quota <= 0 or len(window) + missing > WINDOW_SPAN_MAX:
                return
            if missing:
                self.missing.append((window.end + 1, first - 1))
                window.append(missing, ARCHIVED, 0)
            if quota < last - first + 1:
                last = min(last, self._rounded(first + quota - 1))
            window.append(last - first + 1, UNSEEN, 0)
            self._take_new(first, last, quota)
            room -= last - first + 1

    def _take_new(self, first: int, last: int, quota: int) -> None:
        """Takes unseen records of the window, and leaves free what is beyond an exact quota."""
        window = self._window
        for part_first, part_last in self._divided(first, last):
            begin = window.position(part_first)
            end = begin + part_last - part_first + 1
            stop = end if self._whole_batches else min(end, begin + quota)
            window.begin_batch(begin)
            self._take(begin, stop, UNSEEN, 0)
            if stop < end:
                window.move(stop, end, UNSEEN, AVAILABLE)

    def _divided(self, first: int, last: int) -> list[OffsetRange]:
        """A stretch in parts of at least `batch_size`, at the bounds of record batches."""
        if not self._whole_batches or last - first + 1 <= self._batch_size:
            return [(first, last)]
        parts = []
        for place in range(bisect_left(self._batches, (first, 0)), len(self._batches)):
            base = self._batches[place][0]
            if base > last:
                break
            if base > first and base - first >= self._batch_size:
                parts.append((first, base - 1))
                first = base
        return [*parts, (first, last)]

    def _take(self, begin: int, end: int, old: int, count: int) -> None:
        window = self._window
        window.move(begin, end, old, ACQUIRED)
        window.set_count(begin, end, count + 1)
        window.lock(begin, end, self._lock)
        offset = window.offset(begin)
        self.acquired.append(Acquired(offset, offset + end - begin - 1, count + 1))
        self._left -= end - begin

    def _within_quota(self, begin: int, end: int) -> int:
        """Where to stop in a run; the last one within the quota says where everything ends."""
        if 0 < self._left <= end - begin:
            stop = begin + self._left
            if self._whole_batches:
                stop = self._batch_end(stop - 1)
            self._end = min(self._end, stop)
        return min(end, self._end)

    def _batch_end(self, position: int) -> int:
        """Where to stop at the latest if the quota is reached with this record."""
        window = self._window
        return window.position(self._rounded(window.offset(position))) + 1

    def _rounded(self, offset: int) -> int:
        """The last offset of the record batch of the log around this one, which has to be among
        those that were read; this one if that is too far.
        """
        place = bisect_right(self._batches, (offset, _LAST_OFFSET_MAX)) - 1
        last = max(offset, self._batches[place][1]) if place >= 0 else offset
        return last if last - offset <= self._beyond else offset
