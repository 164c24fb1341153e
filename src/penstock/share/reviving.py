"""Records that are done are delivered anew, to this group alone.

A record may be done within the window, or lie below its start, as far as the log goes. Then the
window begins at the oldest of them, and what is done in between is folded, so that it takes hardly
any memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final

from penstock.base.errors import ApiError, ErrorCode
from penstock.share.changes import OffsetRange
from penstock.share.types import ShareState, StateBatch
from penstock.share.window import (
    ACKNOWLEDGED,
    AVAILABLE,
    CHANGING,
    FOLD_RECORDS_MIN,
    TERMINAL,
    Window,
)

REVIVED_RECORDS_MAX: Final = 10_000
"""Records of a share-partition that were revived and are not done."""
OFFSETS_SPAN_MAX: Final = 2**30
"""Offsets of a window: how many of them are done is persisted in 32 bits."""

_LAST_OFFSET: Final = itemgetter(1)


def ascending(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """The same offsets in ascending ranges that neither overlap nor touch."""
    joined: list[OffsetRange] = []
    for first, last in sorted(ranges):
        if not 0 <= first <= last:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{first} to {last} is no range of offsets")
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return joined


def done_in(window: Window, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """What of these ranges is done for good: below the window all of it."""
    found = []
    for first, last in ranges:
        if first < window.start:
            found.append((first, min(last, window.start - 1)))
        for begin, end, state in window.state_runs(*window.clip(first, last)):
            if state in TERMINAL:
                # A fold may reach beyond the range.
                found.append((max(window.offset(begin), first), min(window.offset(end) - 1, last)))
    return found


class Revived:
    """The offsets of records that were revived."""

    def __init__(self, state: ShareState) -> None:
        """What is persisted as available and was never delivered was revived: nothing else is."""
        self.offsets: set[int] = set()
        """Of some that are done, too."""
        for first, last, number, count, *_ in state.batches:
            room = REVIVED_RECORDS_MAX - len(self.offsets)
            if number == AVAILABLE and count == 0 and last - first < room:
                self.offsets.update(range(first, last + 1))

    def alive(self, window: Window) -> int:
        """How many of them are not done."""
        self.offsets = {offset for offset in self.offsets if window.is_unfinished(offset)}
        return len(self.offsets)

    def revivable(self, window: Window, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """What of these ranges can be revived, ascending; ApiError if it is too much."""
        found = ascending(done_in(window, ascending(ranges)))
        check(window, found, self.alive(window))
        return found

    def add(self, ranges: Sequence[OffsetRange]) -> None:
        for first, last in ranges:
            self.offsets.update(range(first, last + 1))


def check(window: Window, ranges: Sequence[OffsetRange], alive: int) -> None:
    """Whether so much can be revived; `alive` are revived already."""
    if sum(last - first + 1 for first, last in ranges) + alive > REVIVED_RECORDS_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"at most {REVIVED_RECORDS_MAX} records of a partition can be revived at a time; "
            f"{alive} are not done yet",
        )
    if ranges and window.end - ranges[0][0] >= OFFSETS_SPAN_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"offset {ranges[0][0]} lies {OFFSETS_SPAN_MAX} or more records back",
        )


def begin(
    window: Window, ranges: Sequence[OffsetRange]
) -> tuple[Window, list[StateBatch], list[StateBatch], list[StateBatch]]:
    """The window with records that are done changing to available.

    Also what is begun, what they were, and what is done around them below the window as it was.
    """
    start = window.start
    if window.folds is not None or (ranges and ranges[0][0] < start):
        window = folded(window, ranges)
    begun: list[StateBatch] = []
    before: list[StateBatch] = []
    for first_offset, last_offset in ranges:
        first, stop = window.clip(first_offset, last_offset)
        for run, run_end, state in window.state_runs(first, stop):
            for at, end, count in window.count_runs(run, run_end):
                offsets = window.offset(at), window.offset(end) - 1
                before.append(StateBatch(*offsets, state, count))
                window.move(at, end, state, CHANGING | AVAILABLE)
        window.set_count(first, stop, 0)
        window.begin_batch(first)
        window.begin_batch(stop)
        begun.append(StateBatch(first_offset, last_offset, AVAILABLE, 0, replaces=True))
    around = [
        StateBatch(window.offset(at), window.offset(end) - 1, state, 0, replaces=True)
        for at, end, state in window.state_runs(*window.clip(window.start, start - 1))
        if state in TERMINAL
    ]
    return window, begun, before, around


def undo(window: Window, before: Sequence[StateBatch]) -> list[OffsetRange]:
    """They are done as before; those that are still in the window."""
    undone = []
    for first, last, state, count, *_ in before:
        at, end = window.clip(first, last)
        if at < end:
            window.move(at, end, CHANGING | AVAILABLE, state)
            window.set_count(at, end, count)
            undone.append((first, last))
    return undone


def folded(window: Window, apart: Sequence[OffsetRange] = ()) -> Window:
    """The same window with long runs of what is done in folds.

    The ascending ranges `apart` get a cell for each record. They may lie below the window, which
    begins with them then, and what is between is done.
    """
    start = min(window.start, apart[0][0]) if apart else window.start
    made = Window(start)

    def add_done(first: int, last: int, state: int, count: int) -> None:
        at = bisect_left(apart, first, key=_LAST_OFFSET)
        while first <= last:
            begin, end = apart[at] if at < len(apart) else (last + 1, last + 1)
            if first < begin:
                stop = min(last, begin - 1)
                made.append_done(stop - first + 1, state, count)
            else:
                stop = min(last, end)
                made.append(stop - first + 1, state, count)
                at += 1
            first = stop + 1

    if start < window.start:
        add_done(start, window.start - 1, ACKNOWLEDGED, 0)
    copied = 0
    for at, end, state in window.state_runs(0, len(window)):
        if state not in TERMINAL:
            continue
        for run, run_end, count in window.count_runs(at, end):
            first, last = window.offset(run), window.offset(run_end) - 1
            is_folded = last - first + 1 > run_end - run
            if is_folded or run_end - run >= FOLD_RECORDS_MIN:
                made.append_from(window, copied, run)
                add_done(first, last, state, count)
                copied = run_end
    made.append_from(window, copied, len(window))
    return made
