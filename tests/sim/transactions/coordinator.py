"""The simulated coordinator: a shard, a log that commits later than it is written, and crashes.

Answers and actions are given when the records before them are committed, as the real driver does. A
crash keeps what is committed and some of the rest, batch by batch.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

from penstock.coordinator.effects import (
    Caller,
    CoordinatorRecord,
    Effects,
    Reply,
    SetTimer,
    TimerKey,
)
from penstock.coordinator.transaction import (
    TransactionConfig,
    TransactionShard,
    WriteMarkers,
)
from penstock.coordinator.transaction.metadata import TransactionMetadata, from_record
from penstock.coordinator.transaction.records import TransactionLogValue, decode
from penstock.coordinator.transaction.states import PREPARED, State
from penstock.wire.schema import Message

EXPIRATION_MS = 5_000
RETRY_MS = 500


@dataclass
class _Staged:
    """What waits for the log to be committed up to `batches`."""

    batches: int
    replies: list[Reply]
    actions: list[WriteMarkers]


class Coordinator:
    def __init__(
        self,
        chance: random.Random,
        give: Callable[[list[Reply]], None],
        do: Callable[[WriteMarkers], None],
        after: Callable[[int, Callable[[], None]], None],
    ) -> None:
        self._chance = chance
        self._give, self._do, self._after = give, do, after
        self._producer_ids = itertools.count(1000)
        self.log: list[list[CoordinatorRecord]] = []
        self.committed = 0
        self.epoch = 0
        self.up = True
        self.timers: dict[TimerKey, int] = {}
        self._staged: list[_Staged] = []
        self._latest: dict[str, TransactionLogValue | None] = {}
        """What the committed part of the log says."""
        self._epochs: dict[str, int] = {}
        self._used_ids: dict[str, list[int]] = {}
        self.shard = self._new()

    def _new(self) -> TransactionShard:
        config = TransactionConfig(
            transactional_id_expiration_ms=EXPIRATION_MS,
            transaction_abort_timed_out_transaction_cleanup_interval_ms=RETRY_MS,
        )
        return TransactionShard(config, self.epoch, self._take_producer_id, lambda: 2)

    def _take_producer_id(self) -> int | None:
        return None if self._chance.random() < 0.1 else next(self._producer_ids)

    def begin_with(self, metadata: TransactionMetadata) -> None:
        """The log has had this in it from the beginning."""
        self.log.append([metadata.record(2)])
        self._check_history(self.log[-1])
        self.committed = len(self.log)
        self.shard = self._replayed()

    # -- events --------------------------------------------------------------------------------

    def handle(self, request: Message, caller: Caller, now: int) -> None:
        self._perform(self.shard.handle(request, caller, now))

    def markers_written(self, action: WriteMarkers, now: int) -> None:
        """Only the coordinator that has ordered the markers hears of them."""
        if self.up and action.coordinator_epoch == self.epoch:
            self._perform(
                self.shard.markers_written(
                    action.transactional_id, action.producer_id, action.producer_epoch, now
                )
            )

    def expire(self, now: int) -> None:
        if self.up:
            self._perform(self.shard.expire(now))

    def next_timer(self) -> int | None:
        return min(self.timers.values(), default=None) if self.up else None

    def fire(self, now: int) -> None:
        for key in [key for key, due in self.timers.items() if due <= now]:
            if self.timers.pop(key, None) is not None:
                self._perform(self.shard.on_timer(key, now))

    def _perform(self, effects: Effects) -> None:
        if effects.records:
            self.log.append(effects.records)
            self._after(self._chance.randint(0, 15), self._commit_up_to(len(self.log)))
        for timer in effects.timers:
            if isinstance(timer, SetTimer):
                self.timers[timer.key] = timer.deadline_ms
            else:
                self.timers.pop(timer.key, None)
        actions = [action for action in effects.actions if isinstance(action, WriteMarkers)]
        self._staged.append(_Staged(len(self.log), effects.replies, actions))
        self.shard.invariants()
        self._release()

    def _commit_up_to(self, batches: int) -> Callable[[], None]:
        epoch = self.epoch

        def commit() -> None:
            if self.up and self.epoch == epoch and batches > self.committed:
                for batch in self.log[self.committed : batches]:
                    self._check_history(batch)
                self.committed = batches
                self._release()

        return commit

    def _release(self) -> None:
        while self._staged and self._staged[0].batches <= self.committed:
            staged = self._staged.pop(0)
            self._give(staged.replies)
            for action in staged.actions:
                self._check_decided(action)
                self._do(action)

    # -- crashes -------------------------------------------------------------------------------

    def crash(self) -> None:
        self.up = False
        del self.log[self._chance.randint(self.committed, len(self.log)) :]
        for batch in self.log[self.committed :]:
            self._check_history(batch)
        self.committed = len(self.log)
        self._staged.clear()
        self.timers.clear()

    def restart(self, now: int) -> None:
        self.up = True
        self.epoch += 1
        self.shard = self._replayed()
        self._perform(self.shard.loaded(now))

    def _replayed(self) -> TransactionShard:
        shard = self._new()
        for batch in self.log:
            for key, value in batch:
                shard.replay(key, value, 0, None)
        return shard

    # -- what must hold ------------------------------------------------------------------------

    def check_replay(self) -> None:
        """The records alone make the same shard."""
        assert self._replayed().transactions == self.shard.transactions, "replay differs"

    def _check_decided(self, action: WriteMarkers) -> None:
        """No marker goes out before its decision is in the log for good."""
        found = self._latest.get(action.transactional_id)
        assert found is not None, f"{action} without a record"
        metadata = from_record(action.transactional_id, found)
        assert metadata.state in PREPARED, f"{action} in {metadata.state}"
        assert action.commit == (metadata.state is State.PREPARE_COMMIT)
        assert (action.producer_id, action.producer_epoch) == (
            metadata.producer_id,
            metadata.producer_epoch,
        )

    def _check_history(self, batch: list[CoordinatorRecord]) -> None:
        """Neither epochs nor producer ids come back."""
        for record in batch:
            decoded = decode(*record)
            assert decoded is not None
            self._latest[decoded.transactional_id] = decoded.value
            if decoded.value is None:
                continue
            name, value = decoded.transactional_id, decoded.value
            used = self._used_ids.setdefault(name, [])
            if not used or used[-1] != value.producer_id:
                assert value.producer_id not in used, f"{name}: {value.producer_id} came back"
                used.append(value.producer_id)
                self._epochs[name] = 0
            assert value.producer_epoch >= self._epochs[name], f"{name}: the epoch went back"
            self._epochs[name] = value.producer_epoch
