"""What is persisted of one share-partition, and the records that say so.

The state is immutable: a record replaces it. `after` is the one place where a record changes a
state, for records that are being written and for those that are replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.coordinator.effects import CoordinatorRecord
from penstock.coordinator.share_state.batches import combined, is_sound
from penstock.coordinator.share_state.records import (
    SNAPSHOT,
    UPDATE,
    ShareSnapshotValue,
    ShareUpdateValue,
    Value,
    batches_of,
    encode_key,
    encode_value,
    recorded,
)
from penstock.share.types import UNINITIALIZED_START, ShareKey, StateBatch

KEEP_EPOCH = -1
"""A leader or state epoch that is not compared and not changed."""


@dataclass(frozen=True, slots=True)
class StoredState:
    snapshot_epoch: int
    """How many snapshots came before the newest."""
    state_epoch: int
    leader_epoch: int
    """Of the last leader that has read the state, or a later one."""
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]
    created_ms: int
    written_ms: int
    """When the newest snapshot was written; later than `created_ms` if it was a cold one, which
    repeats what is known.
    """
    updates: int = 0
    """Since the newest snapshot."""

    @property
    def is_cold(self) -> bool:
        return self.created_ms != self.written_ms

    def is_sound(self) -> bool:
        return is_sound(self.batches)


@dataclass(frozen=True, slots=True)
class Change:
    """What a leader writes: the start offset -1 leaves the old one."""

    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]


def after(state: StoredState | None, value: Value) -> StoredState | None:
    """The state when a record has been added. An update whose snapshot was pruned says nothing: a
    newer snapshot, or a tombstone, follows it.
    """
    if isinstance(value, ShareSnapshotValue):
        return StoredState(
            value.snapshot_epoch,
            value.state_epoch,
            value.leader_epoch,
            value.start_offset,
            value.delivery_complete_count,
            batches_of(value),
            value.create_timestamp,
            value.write_timestamp,
        )
    if state is None:
        return None
    change = Change(value.start_offset, value.delivery_complete_count, batches_of(value))
    epoch = state.leader_epoch if value.leader_epoch == KEEP_EPOCH else value.leader_epoch
    return replace(changed(state, change), leader_epoch=epoch, updates=state.updates + 1)


def changed(state: StoredState, change: Change) -> StoredState:
    start_offset = change.start_offset
    if start_offset == UNINITIALIZED_START:
        start_offset = state.start_offset
    return replace(
        state,
        start_offset=start_offset,
        delivery_complete_count=change.delivery_complete_count,
        batches=combined(state.batches, change.batches, start_offset),
    )


def snapshot_value(state: StoredState) -> ShareSnapshotValue:
    return ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.created_ms,
        write_timestamp=state.written_ms,
        state_batches=recorded(state.batches),
    )


def update_value(state: StoredState, change: Change, leader_epoch: int) -> ShareUpdateValue:
    """What an update after the newest snapshot of `state` says."""
    return ShareUpdateValue(
        snapshot_epoch=state.snapshot_epoch,
        leader_epoch=leader_epoch,
        start_offset=change.start_offset,
        delivery_complete_count=change.delivery_complete_count,
        state_batches=recorded(combined((), change.batches, change.start_offset)),
    )


def record_of(key: ShareKey, value: Value | None) -> CoordinatorRecord:
    """None is a tombstone."""
    kind = UPDATE if isinstance(value, ShareUpdateValue) else SNAPSHOT
    return CoordinatorRecord(encode_key(kind, key), None if value is None else encode_value(value))
