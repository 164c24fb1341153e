"""Plain values of share groups: for leaders, the persister and the coordinator of their state.

The numbers of `RecordState` are Kafka's, as they are persisted and travel between brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from penstock.base.ids import Uuid, uuid_text

UNINITIALIZED_START = -1
"""A start offset that the leader of the partition has to resolve."""

UNKNOWN_COUNT = -1


class RecordState(IntEnum):
    """What became of one record in one share group."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """To become a dead letter: it is archived when that is written (Kafka 4.4)."""
    ARCHIVED = 4


class Cause(IntEnum):
    """Why a record becomes a dead letter."""

    NONE = 0
    """Not known: Kafka persists no cause."""
    REJECTED = 1
    LIMIT = 2
    """It was delivered as often as the group allows."""


class ShareKey(NamedTuple):
    """One partition as one share group consumes it."""

    group_id: str
    topic_id: Uuid
    partition: int

    @property
    def text(self) -> str:
        """By which its coordinator is found."""
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{self.partition}"


class StateBatch(NamedTuple):
    """Neighbouring records of the same state, count and cause."""

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int
    cause: int = Cause.NONE
    replaces: bool = False
    """Whether it stands over what was persisted of these records, whatever that is. Else a record
    only moves on. It says how to persist, and is not itself persisted.
    """


class ShareState(NamedTuple):
    """What is persisted of a share-partition."""

    state_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]
