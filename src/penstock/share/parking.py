"""When records that rest are available again.

The window says which records rest, and until when. Here is for each time where to look for them, so
that nothing is kept per record, and there is one time to wait for. Times are rounded up to whole
TICK_MS, so that records that come back one by one share an entry. What is gone from the window, or
rests no more, is not looked for: an entry may be about records that are not there.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

from penstock.base.errors import invariant
from penstock.share.window import PARKED, Window

PARKED_RECORDS_MAX: Final = 100_000
"""Records of a share-partition that rest; those beyond are available at once."""
TICK_MS: Final = 10


class Parking:
    def __init__(self) -> None:
        self._times: list[int] = []
        """A heap."""
        self._ranges: dict[int, array[int]] = {}
        """For each time first and last offsets by turns."""

    @property
    def next_deadline_ms(self) -> int | None:
        return self._times[0] if self._times else None

    def park(self, window: Window, begin: int, end: int, old: int, free_at_ms: int) -> bool:
        """Have records in the state `old` rest; False if too many do."""
        if window.numbers[PARKED] + end - begin > PARKED_RECORDS_MAX:
            return False
        free_at_ms = -(-free_at_ms // TICK_MS) * TICK_MS
        window.move(begin, end, old, PARKED)
        window.mark(begin, end, free_at_ms)
        ranges = self._ranges.get(free_at_ms)
        if ranges is None:
            ranges = self._ranges[free_at_ms] = array("q")
            heappush(self._times, free_at_ms)
        first, last = window.offset(begin), window.offset(end) - 1
        if ranges and ranges[-1] == first - 1:
            ranges[-1] = last
        else:
            ranges.extend((first, last))
        return True

    def due(self, window: Window, now_ms: int) -> Iterator[tuple[int, int]]:
        """The records whose time has come, as runs of the window, which still rest."""
        while self._times and self._times[0] <= now_ms:
            time_ms = heappop(self._times)
            ranges = iter(self._ranges.pop(time_ms))
            for first, last in zip(ranges, ranges, strict=True):
                for begin, end, state in window.state_runs(*window.clip(first, last)):
                    if state == PARKED:
                        yield from window.marked_with(begin, end, time_ms)

    def invariants(self, window: Window) -> None:
        invariant(window.numbers[PARKED] <= PARKED_RECORDS_MAX, "too many records rest")
        for begin, end, state in window.state_runs(0, len(window)):
            if state == PARKED:
                for first, stop, time_ms in window.mark_runs(begin, end):
                    offsets = range(window.offset(first), window.offset(stop))
                    invariant(
                        all(self._looks_for(time_ms, offset) for offset in offsets),
                        "a record rests, and nobody looks for it",
                    )

    def _looks_for(self, time_ms: int, offset: int) -> bool:
        ranges = iter(self._ranges.get(time_ms, ()))
        return any(first <= offset <= last for first, last in zip(ranges, ranges, strict=True))
