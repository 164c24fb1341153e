"""One partition of `__share_group_state`: what is persisted of the share-partitions hashed to it.

Duty: begin, read, write and forget the states; refuse who is fenced; say how far the log may be
pruned. The checks, in this order, decide the code of each share-partition:

                          initialise  read  write  delete  summary
    partition < 0             x         x     x      x        x     INVALID_REQUEST
    a batch ends before
      it begins                               x                     INVALID_REQUEST
    nothing is known                    x     x                     INVALID_REQUEST
    older leader epoch                  x     x                     FENCED_LEADER_EPOCH
    older state epoch         x               x                     FENCED_STATE_EPOCH
    no such partition         x         x     x      x        x     UNKNOWN_TOPIC_OR_PARTITION

Every `updates_per_snapshot` updates of a share-partition a snapshot is written, so that what is
before it can be pruned; a share-partition that nobody writes gets one from time to time, since the
log can be pruned only up to the oldest of all newest snapshots.

Invariants: an event changes memory and log alike, so a replay of the records this shard has
emitted, from its start or from any offset that it allowed to prune to, builds an equal shard. A
request may only name share-partitions that hash to this partition: the driver sees to that. No
request waits inside the shard. Limits: `BATCH_BYTES_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from penstock.base.errors import ErrorCode, InvariantBroken, invariant
from penstock.base.ids import Uuid
from penstock.coordinator.effects import Caller, Effects, Reply, TimerKey
from penstock.coordinator.share_state.answers import answer, refused, result
from penstock.coordinator.share_state.config import Environment
from penstock.coordinator.share_state.pruning import SnapshotOffsets
from penstock.coordinator.share_state.records import Value, decode
from penstock.coordinator.share_state.state import (
    KEEP_EPOCH,
    Change,
    StoredState,
    after,
    changed,
    record_of,
    snapshot_value,
    update_value,
)
from penstock.share.types import (
    UNINITIALIZED_START,
    UNKNOWN_COUNT,
    ShareKey,
    StateBatch,
)
from penstock.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest
from penstock.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from penstock.wire.messages.read_share_group_state import ReadShareGroupStateRequest
from penstock.wire.messages.read_share_group_state import StateBatch as ReadBatch
from penstock.wire.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
)
from penstock.wire.messages.write_share_group_state import WriteShareGroupStateRequest
from penstock.wire.schema import Message

BATCH_BYTES_MAX: Final = 256 * 1024
"""How much one round of snapshots writes, give or take a record. The tombstones of a deleted topic
are one batch: a few dozen bytes for each share-partition.
"""


class PruneTo(NamedTuple):
    """Everything below the offset says nothing any more; an action."""

    offset: int


class _Refusal(Exception):
    """What is said of a share-partition in the place of a result."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


class ShareStateShard:
    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.states: dict[ShareKey, StoredState] = {}
        self.offsets = SnapshotOffsets()

    # -- loading -------------------------------------------------------------------------------

    def replay(
        self, key: bytes, value: bytes | None, _timestamp: int, _producer_id: int | None
    ) -> None:
        """Apply a stored record; CorruptRecord if it cannot be read."""
        record = decode(key, value)
        if record is not None:
            self._apply(record.key, record.value)

    def placed(self, key: bytes, value: bytes | None, offset: int) -> None:
        """A record that was replayed or emitted has this offset in the log."""
        self.offsets.placed(key, value, offset)

    def replay_marker(self, _producer_id: int, _commit: bool) -> None:
        """Nobody writes to this topic in a transaction."""
        raise InvariantBroken("the log of the share coordinator has a transaction marker in it")

    def loaded(self, _now_ms: int) -> Effects:
        """The partition has been replayed; topics may have been deleted since."""
        return self.forget_topics({key.topic_id for key in self.states})

    def unload(self) -> list[Reply]:
        return []

    def on_timer(self, key: TimerKey, now_ms: int) -> Effects:
        """No timer is ever set."""
        raise InvariantBroken(f"a shard without timers is told that {key} is due")

    # -- events --------------------------------------------------------------------------------

    def handle(self, request: Message, caller: Caller, now_ms: int) -> Effects:
        """One request: a result for each share-partition, one batch for all that is written."""
        effects = Effects()
        one, kind, group_id = _HANDLERS[type(request)], type(request), request.group_id  # type: ignore[attr-defined]

        def result_of(topic_id: Uuid, named: Any) -> Any:
            key = ShareKey(group_id, topic_id, named.partition)
            try:
                _check_index(key)
                return one(self, key, named, effects, now_ms)
            except _Refusal as e:
                return refused(kind, named.partition, e.code, e.why)

        effects.answer(caller, answer(request, result_of))
        return effects

    def forget_topics(self, topic_ids: Collection[Uuid]) -> Effects:
        """Forget all that is known of those of the topics that are gone."""
        gone = {id_ for id_ in topic_ids if not self.environment.partitions_of(id_)}
        effects = Effects()
        if gone:
            for key in [key for key in self.states if key.topic_id in gone]:
                self._write(effects, key, None)
        return effects

    def snapshot_cold(self, now_ms: int) -> Effects:
        """Write again what nobody has written for long; call again while it does. Where every
        share-partition is cold there is nothing to prune for.
        """
        effects = Effects()
        if all(state.is_cold for state in self.states.values()):
            return effects
        before_ms, size = now_ms - self.environment.config.cold_interval_ms, 0
        for key, state in list(self.states.items()):
            if state.written_ms <= before_ms:
                again = state._replace(snapshot_epoch=state.snapshot_epoch + 1, written_ms=now_ms)
                size += self._write(effects, key, snapshot_value(again))
                if size >= BATCH_BYTES_MAX:
                    break
        return effects

    def prune(self, _now_ms: int) -> Effects:
        """Once all that has been written is committed, what nobody needs may go."""
        offset = self.offsets.prunable
        return Effects(actions=[PruneTo(offset)]) if offset is not None else Effects()

    def invariants(self) -> None:
        """Raise InvariantBroken if a state contradicts itself; for tests."""
        for key, state in self.states.items():
            invariant(state.is_sound(), f"the batches of {key.text} overlap")
            limit = self.environment.config.updates_per_snapshot
            invariant(state.updates <= limit, f"{key.text} has had no snapshot for too long")

    # -- one share-partition -------------------------------------------------------------------

    def _initialise(self, key: ShareKey, named: Any, effects: Effects, now_ms: int) -> Any:
        known = self.states.get(key)
        _check_state_epoch(known, named.state_epoch)
        self._check_exists(key)
        start = named.start_offset
        state = StoredState(
            0 if known is None else known.snapshot_epoch + 1,
            named.state_epoch,
            # A new beginning does not bring back an old leader. (Kafka forgets the epoch here, but
            # fences by it until it loads the partition anew.)
            0 if known is None else known.leader_epoch,
            start,
            UNKNOWN_COUNT if start == UNINITIALIZED_START else 0,
            (),
            now_ms,
            now_ms,
        )
        if known is not None and named.state_epoch == KEEP_EPOCH:
            state = state._replace(state_epoch=known.state_epoch)
        self._write(effects, key, snapshot_value(state))
        return result(InitializeShareGroupStateRequest, key.partition)

    def _read(self, key: ShareKey, named: Any, effects: Effects, now_ms: int) -> Any:
        state = self._known(key)
        _check_leader_epoch(state, named.leader_epoch)
        self._check_exists(key)
        if named.leader_epoch not in (KEEP_EPOCH, state.leader_epoch):
            # From now on the leaders before this one are fenced, whoever coordinates.
            unchanged = Change(state.start_offset, state.delivery_complete_count, ())
            self._write_change(effects, key, unchanged, named.leader_epoch, now_ms)
        return result(
            ReadShareGroupStateRequest,
            key.partition,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=[
                ReadBatch(
                    first_offset=first,
                    last_offset=last,
                    delivery_state=of,
                    delivery_count=count,
                    cause=cause,
                )
                for first, last, of, count, cause, _ in state.batches
            ],
        )

    def _write_state(self, key: ShareKey, named: Any, effects: Effects, now_ms: int) -> Any:
        batches = [
            StateBatch(
                b.first_offset,
                b.last_offset,
                b.delivery_state,
                b.delivery_count,
                b.cause,
                b.replaces,
            )
            for b in named.state_batches
        ]
        if any(batch.first_offset > batch.last_offset for batch in batches):
            raise _Refusal(ErrorCode.INVALID_REQUEST, "a state batch ends before it begins")
        state = self._known(key)
        _check_leader_epoch(state, named.leader_epoch)
        _check_state_epoch(state, named.state_epoch)
        self._check_exists(key)
        change = Change(named.start_offset, named.delivery_complete_count, batches)
        self._write_change(effects, key, change, state.leader_epoch, now_ms)
        return result(WriteShareGroupStateRequest, key.partition)

    def _delete(self, key: ShareKey, _named: Any, effects: Effects, _now_ms: int) -> Any:
        self._check_exists(key)
        if key in self.states:
            self._write(effects, key, None)
        return result(DeleteShareGroupStateRequest, key.partition)

    def _summarise(self, key: ShareKey, _named: Any, _effects: Effects, _now_ms: int) -> Any:
        self._check_exists(key)
        state = self.states.get(key)
        if state is None:
            epochs, start, count = (0, 0), UNINITIALIZED_START, UNKNOWN_COUNT
        else:
            epochs = state.state_epoch, state.leader_epoch
            start, count = state.start_offset, state.delivery_complete_count
        return result(
            ReadShareGroupStateSummaryRequest,
            key.partition,
            state_epoch=epochs[0],
            leader_epoch=epochs[1],
            start_offset=start,
            delivery_complete_count=count,
        )

    def _known(self, key: ShareKey) -> StoredState:
        state = self.states.get(key)
        if state is None:
            raise _Refusal(ErrorCode.INVALID_REQUEST, "the share-partition is not initialised")
        return state

    def _check_exists(self, key: ShareKey) -> None:
        if key.partition >= self.environment.partitions_of(key.topic_id):
            raise _Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")

    # -- writing -------------------------------------------------------------------------------

    def _write_change(
        self, effects: Effects, key: ShareKey, change: Change, leader_epoch: int, now_ms: int
    ) -> None:
        """An update; or a snapshot, where it is time for one, or a record is revived: who reads an
        update takes it that records only move on.
        """
        state = self.states[key]
        self.environment.counts.writes += 1
        is_update = state.updates < self.environment.config.updates_per_snapshot
        if is_update and not any(batch.replaces for batch in change.batches):
            self._write(effects, key, update_value(state, change, leader_epoch))
            return
        snapshot = changed(
            state,
            change,
            snapshot_epoch=state.snapshot_epoch + 1,
            leader_epoch=leader_epoch,
            created_ms=now_ms,
            written_ms=now_ms,
        )
        self._write(effects, key, snapshot_value(snapshot))

    def _write(self, effects: Effects, key: ShareKey, value: Value | None) -> int:
        """Add the record and apply it; its size in bytes."""
        record = record_of(key, value)
        effects.records.append(record)
        self._apply(key, value)
        return len(record.key) + len(record.value or b"")

    def _apply(self, key: ShareKey, value: Value | None) -> None:
        state = None if value is None else after(self.states.get(key), value)
        if state is None:
            self.states.pop(key, None)
        else:
            self.states[key] = state


def _check_index(key: ShareKey) -> None:
    if key.partition < 0:
        raise _Refusal(ErrorCode.INVALID_REQUEST, "a partition has a negative number")


def _check_leader_epoch(state: StoredState, epoch: int) -> None:
    if KEEP_EPOCH != epoch < state.leader_epoch:
        raise _Refusal(ErrorCode.FENCED_LEADER_EPOCH, "the partition has a later leader")


def _check_state_epoch(state: StoredState | None, epoch: int) -> None:
    if state is not None and KEEP_EPOCH != epoch < state.state_epoch:
        raise _Refusal(ErrorCode.FENCED_STATE_EPOCH, "the share-partition was begun anew")


def keys_of(request: Any) -> Iterable[ShareKey]:
    """The share-partitions that a request names."""
    return (
        ShareKey(request.group_id, topic.topic_id, named.partition)
        for topic in request.topics
        for named in topic.partitions
    )


_HANDLERS: Final[
    Mapping[type[Message], Callable[[ShareStateShard, ShareKey, Any, Effects, int], Any]]
] = {
    InitializeShareGroupStateRequest: ShareStateShard._initialise,
    ReadShareGroupStateRequest: ShareStateShard._read,
    WriteShareGroupStateRequest: ShareStateShard._write_state,
    DeleteShareGroupStateRequest: ShareStateShard._delete,
    ReadShareGroupStateSummaryRequest: ShareStateShard._summarise,
}
