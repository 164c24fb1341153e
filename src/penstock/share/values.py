"""What is asked of a share-partition and what it answers, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple


class ShareLimits(NamedTuple):
    """The settings of a group that a share-partition goes by."""

    record_locks_max: int
    delivery_count_limit: int
    lock_duration_ms: int
    renew_allowed: bool


class AcquireMode(IntEnum):
    """How a member wants to acquire: Kafka's numbers."""

    BATCH_OPTIMIZED = 0
    """Whole batches, and so perhaps more records than were asked for."""
    RECORD_LIMIT = 1
    """Exactly as many records as were asked for, at most."""


class AckType(IntEnum):
    """What a member says of a record: Kafka's numbers."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Acquired(NamedTuple):
    """Neighbouring records that a member has acquired."""

    first_offset: int
    last_offset: int
    delivery_count: int


class AckBatch(NamedTuple):
    """Acknowledgements of a range: one type for all of it, or one for each offset."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class RecordRun(NamedTuple):
    """Neighbouring records that are alike, for tools."""

    first_offset: int
    last_offset: int
    state: str
    delivery_count: int
    member_id: str
    """Who holds them; empty if nobody does."""
