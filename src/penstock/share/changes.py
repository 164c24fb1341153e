"""What of a share-partition has to be persisted, and what became of it.

A change has two kinds of content. What was *begun* (acknowledged, released) is changing in memory
until the change is written; if it is not, the records go back. *Facts* (a lock ran out, a record
is gone from the log) hold in memory already; if the change is not written, the next one takes them
along.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from penstock.share.types import StateBatch
from penstock.share.window import (
    ACQUIRED,
    ARCHIVING,
    AVAILABLE,
    CHANGING,
    DEAD,
    PARKED,
    UNSEEN,
    Window,
)

OffsetRange: TypeAlias = tuple[int, int]
"""First and last offset."""


class Change:
    """To be persisted, in the order in which changes were made, and then handed back."""

    __slots__ = (
        "batches",
        "begun",
        "condemned",
        "delivery_complete_count",
        "facts",
        "start_offset",
        "undo",
    )

    def __init__(
        self,
        begun: list[StateBatch],
        facts: list[OffsetRange],
        window: Window,
        around: list[StateBatch] | None = None,
    ) -> None:
        """`around`: what has to be persisted, too, so that the start can go back."""
        self.begun = begun
        self.facts = facts
        self.start_offset = window.start
        self.delivery_complete_count = window.done_or_about_to_be
        self.batches = begun
        self.undo: Sequence[StateBatch] = ()
        """What was done and is revived: as it is again if this is not written."""
        self.condemned: Sequence[OffsetRange] = ()
        """Facts that make records wait to be dead letters, once they are written."""
        if facts or around:
            said = settled(window, facts)
            self.condemned = [batch[:2] for batch in said if batch.state == ARCHIVING]
            self.batches = sorted([*begun, *said, *(around or ())])


def settled(window: Window, ranges: list[OffsetRange]) -> list[StateBatch]:
    """What holds of the records in these ranges; those that are held now are left out."""
    batches = []
    for first_offset, last_offset in ranges:
        for begin, end, state in window.state_runs(*window.clip(first_offset, last_offset)):
            if state in (ACQUIRED, UNSEEN) or state & CHANGING:
                continue
            persisted = AVAILABLE if state == PARKED else ARCHIVING if state in DEAD else state
            for first, stop, count in window.count_runs(begin, end):
                for run, run_end, cause in _cause_runs(window, first, stop, state):
                    offsets = window.offset(run), window.offset(run_end) - 1
                    batches.append(StateBatch(*offsets, persisted, count, cause))
    return batches


def _cause_runs(window: Window, begin: int, end: int, state: int) -> Iterable[tuple[int, int, int]]:
    return window.mark_runs(begin, end) if state in DEAD else ((begin, end, 0),)
