"""What a driver needs of a coordinator's shard: one partition of an internal topic, in memory.

The shards of groups and of transactions have this shape. A driver first replays the partition, in
order, then calls `loaded`, and from then on hands over events; what follows from each it learns
from the `Effects`. Invariant: replaying what a shard has emitted builds an equal shard.
"""

from __future__ import annotations

from typing import Protocol

from penstock.coordinator.effects import Caller, Effects, EndTxnMarker, Reply, TimerKey
from penstock.wire.schema import Message


class Shard(Protocol):
    def replay(
        self, key: bytes, value: bytes | None, timestamp: int, producer_id: int | None
    ) -> None:
        """Apply a stored record; CorruptRecord if it cannot be read. `producer_id` is that of the
        transaction which the record is part of, None if it is part of none.
        """

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        """The transaction of `producer_id` in this partition ended here."""

    def loaded(self, now_ms: int) -> Effects:
        """The partition has been replayed."""

    def handle(self, request: Message, caller: Caller, now_ms: int) -> Effects:
        """One request."""

    def on_timer(self, key: TimerKey, now_ms: int) -> Effects:
        """A timer that the shard has set is due."""

    def unload(self) -> list[Reply]:
        """The shard is given up: answers to the requests that wait inside it."""


class Participant(Shard, Protocol):
    """A shard that takes part in transactions: it stores records that count only once committed."""

    def end_transaction(self, marker: EndTxnMarker, now_ms: int) -> Effects:
        """The coordinator of a transaction ends it here; the `Effects` carry the marker."""
