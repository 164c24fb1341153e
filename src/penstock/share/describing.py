"""A share-partition for people: runs of records that are alike."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from penstock.share.locks import Locks
from penstock.share.types import Cause, RecordState
from penstock.share.values import RecordRun
from penstock.share.window import (
    CHANGING,
    CONDEMNED,
    DEAD,
    PARKED,
    TAKEN,
    TERMINAL,
    UNSEEN,
    Window,
)

_NAMES: Final = {
    **{int(state): state.name for state in RecordState},
    UNSEEN: "UNSEEN",
    PARKED: "PARKED",
    CONDEMNED: f"TO_{RecordState.ARCHIVING.name}",
    TAKEN: RecordState.ARCHIVING.name,
}
_NAMES_CHANGING: Final = {CHANGING | state: f"TO_{name}" for state, name in _NAMES.items()}


def rows(window: Window, locks: Locks, revived: Collection[int]) -> Iterator[RecordRun]:
    """`revived`: offsets of records that were revived; those that are done do not count."""
    for begin, end, state in window.state_runs(0, len(window)):
        name = _NAMES_CHANGING[state] if state & CHANGING else _NAMES[state]
        for first, stop, count in window.count_runs(begin, end):
            for run, run_end, number in window.lock_runs(first, stop):
                offsets = window.offset(run), window.offset(run_end) - 1
                row = RecordRun(*offsets, name, count, "")
                if (lock := locks.find(number)) is not None:
                    row = row._replace(member_id=lock.member, since_ms=lock.since_ms)
                elif state == PARKED:
                    row = row._replace(free_at_ms=window.mark_at(run))
                elif state in DEAD:
                    row = row._replace(cause=Cause(window.mark_at(run)))
                if revived and state not in TERMINAL:
                    yield from _apart(row, revived)
                else:
                    yield row


def _apart(row: RecordRun, revived: Collection[int]) -> Iterator[RecordRun]:
    """The row, with what was revived marked as such."""
    first = row.first_offset
    for offset in range(first + 1, row.last_offset + 2):
        if offset > row.last_offset or (offset in revived) != (first in revived):
            yield row._replace(first_offset=first, last_offset=offset - 1, revived=first in revived)
            first = offset
