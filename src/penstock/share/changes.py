"""What of a share-partition has to be persisted, and what became of it.

A change has two kinds of content. What was *begun* (acknowledged, released) is changing in memory
until the change is written; if it is not, the records go back. *Facts* (a lock ran out, a record
is gone from the log) hold in memory already; if the change is not written, the next one takes them
along.
"""

from __future__ import annotations

from typing import TypeAlias

from penstock.share.types import StateBatch
from penstock.share.window import ACQUIRED, CHANGING, UNSEEN, Window

OffsetRange: TypeAlias = tuple[int, int]
"""First and last offset."""


class Change:
    """To be persisted, in the order in which changes were made, and then handed back."""

    __slots__ = ("batches", "begun", "delivery_complete_count", "facts", "start_offset")

    def __init__(
        self,
        begun: list[StateBatch],
        facts: list[OffsetRange],
        window: Window,
    ) -> None:
        self.begun = begun
        self.facts = facts
        self.start_offset = window.start
        self.delivery_complete_count = window.done_or_about_to_be
        self.batches = begun
        if facts:
            self.batches = sorted([*begun, *settled(window, facts)])


def settled(window: Window, ranges: list[OffsetRange]) -> list[StateBatch]:
    """What holds of the records in these ranges; those that are held now are left out."""
    batches = []
    for first_offset, last_offset in ranges:
        for begin, end, state in window.state_runs(*window.clip(first_offset, last_offset)):
            if state in (ACQUIRED, UNSEEN) or state & CHANGING:
                continue
            for first, stop, count in window.count_runs(begin, end):
                offsets = window.start + first, window.start + stop - 1
                batches.append(StateBatch(*offsets, state, count))
    return batches
