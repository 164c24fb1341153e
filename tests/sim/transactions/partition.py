"""A simulated partition: what producers wrote into it, and how each transaction ended there.

The rules are those of a real log: older epochs are refused, a write that begins a transaction needs
the guard it was verified with, an older coordinator is refused, and a marker of transactions
version 2 ends only transactions of older epochs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.coordinator.transaction import WriteMarkers

Tag: TypeAlias = tuple[str, int]
"""The process that wrote and the number of its transaction."""


@dataclass
class _Producer:
    epoch: int = -1
    coordinator_epoch: int = -1
    guard: object | None = None
    open: list[Tag] = field(default_factory=list)


class Partition:
    def __init__(self, name: str, outcomes: dict[Tag, bool]) -> None:
        """`outcomes` says of each transaction how it ended, wherever it ended first."""
        self.name = name
        self._outcomes = outcomes
        self._producers: dict[int, _Producer] = {}

    def guard(self, producer_id: int) -> object | None:
        """To be had before the coordinator is asked; None while a transaction is open."""
        producer = self._producers.setdefault(producer_id, _Producer())
        if producer.open:
            return None
        if producer.guard is None:
            producer.guard = object()
        return producer.guard

    def write(self, producer_id: int, epoch: int, tag: Tag, guard: object | None) -> bool:
        producer = self._producers.setdefault(producer_id, _Producer())
        if epoch < producer.epoch:
            return False
        if producer.open:
            if epoch != producer.epoch:
                return False
        elif guard is None or guard is not producer.guard:
            return False
        producer.epoch = epoch
        producer.guard = None
        producer.open.append(tag)
        return True

    def end(self, action: WriteMarkers) -> bool:
        """Write a marker; False if it is refused."""
        producer = self._producers.setdefault(action.producer_id, _Producer())
        if action.coordinator_epoch < producer.coordinator_epoch:
            return False
        bumped = action.transaction_version >= 2 and bool(producer.open)
        if action.producer_epoch < producer.epoch + bumped:
            return False
        producer.coordinator_epoch = action.coordinator_epoch
        producer.epoch = action.producer_epoch
        producer.guard = None
        for tag in producer.open:
            known = self._outcomes.setdefault(tag, action.commit)
            assert known == action.commit, f"{tag} ended both ways, here in {self.name}"
        producer.open.clear()
        return True

    @property
    def unfinished(self) -> list[Tag]:
        return [tag for producer in self._producers.values() for tag in producer.open]
