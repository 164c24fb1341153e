"""What is asked of a share-partition and what it answers, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum
from typing import NamedTuple

from penstock.share.types import Cause


class BackoffType(Enum):
    """How the pause before another delivery grows."""

    CONSTANT = "constant"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


class RetryBackoff(NamedTuple):
    """How long a record rests after a delivery that came to nothing."""

    type: BackoffType
    first_ms: int
    """After the first delivery."""
    multiplier: float
    """Of each exponential pause to the one before, from 1 to 10."""
    max_ms: int

    def pause_ms(self, delivery_count: int) -> int:
        before = max(delivery_count - 1, 0)
        pause: float = self.first_ms
        if self.type is BackoffType.LINEAR:
            pause *= before + 1
        elif self.type is BackoffType.EXPONENTIAL:
            pause *= self.multiplier**before
        return int(min(pause, self.max_ms))


class ShareLimits(NamedTuple):
    """The settings of a group that a share-partition goes by."""

    record_locks_max: int
    delivery_count_limit: int
    lock_duration_ms: int
    renew_allowed: bool
    dead_letters: bool = False
    """Whether records that are rejected, or delivered too often, become dead letters."""
    retry: RetryBackoff | None = None
    """How long a record rests that comes back; None: it is available at once."""


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


class DeadLetter(NamedTuple):
    """Neighbouring records to be written as dead letters."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: Cause


class RecordRun(NamedTuple):
    """Neighbouring records that are alike, for tools."""

    first_offset: int
    last_offset: int
    state: str
    delivery_count: int
    member_id: str
    """Who holds them; empty if nobody does."""
    since_ms: int = 0
    """Since when, on the clock of `now_ms`; 0 if nobody does."""
    free_at_ms: int = 0
    """Until when they rest, on the same clock; 0 if they do not."""
    cause: Cause = Cause.NONE
    """Why they become dead letters."""
    revived: bool = False
    """Whether they were done and are to be delivered anew."""
