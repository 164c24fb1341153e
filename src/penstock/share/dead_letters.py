"""Records of a window on their way to become dead letters.

ARCHIVING is persisted before anybody writes a dead letter, with the cause, so that a leader that
comes after knows of it. Who writes them takes records, and says of each whether that is done: then
it is archived, else it is offered again. As many may wait as a window has room for
(`acquiring.WINDOW_SPAN_MAX`).
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.base.errors import invariant
from penstock.share.changes import OffsetRange
from penstock.share.types import Cause
from penstock.share.values import DeadLetter
from penstock.share.window import ARCHIVED, ARCHIVING, TAKEN, Window


def take(window: Window, records_max: int) -> list[DeadLetter]:
    """The oldest that are persisted and that nobody has taken."""
    taken: list[DeadLetter] = []
    begin, end = 0, len(window)
    while records_max > 0 and window.numbers[ARCHIVING]:
        begin = window.states.find(ARCHIVING, begin, end)
        stop = min(next(window.state_runs(begin, end))[1], begin + records_max)
        for first, run_end, count in window.count_runs(begin, stop):
            for run, run_stop, mark in window.mark_runs(first, run_end):
                offsets = window.offset(run), window.offset(run_stop) - 1
                taken.append(DeadLetter(*offsets, count, Cause(mark)))
        window.move(begin, stop, ARCHIVING, TAKEN)
        records_max -= stop - begin
        begin = stop
    return taken


def give_back(window: Window, ranges: Sequence[OffsetRange]) -> None:
    """They could not be written."""
    for begin, end in _taken(window, ranges):
        window.move(begin, end, TAKEN, ARCHIVING)


def archive(window: Window, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """They are written; those of them that are still there."""
    archived = []
    for begin, end in _taken(window, ranges):
        window.move(begin, end, TAKEN, ARCHIVED)
        window.unlock(begin, end)
        archived.append((window.offset(begin), window.offset(end) - 1))
    return archived


def _taken(window: Window, ranges: Sequence[OffsetRange]) -> list[tuple[int, int]]:
    """What is left of records that were taken: others may be gone from the log."""
    runs = []
    for first, last in ranges:
        for begin, end, state in window.state_runs(*window.clip(first, last)):
            invariant(state == TAKEN, "a dead letter was not taken from here")
            runs.append((begin, end))
    return runs
