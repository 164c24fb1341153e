"""DescribeQueues: share-partitions as their leaders know them, ours.

Kafka has no such API (docs/adr/0032).
"""

from __future__ import annotations

from typing import Final

from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, Struct, array, boolean, int16, int32, int64, string

ALL_TOLD: Final = -1
"""`next_offset` of a partition all of whose runs were told."""
UNKNOWN_MS: Final = -1
"""In the place of a duration that is not known, or has no end."""


class QueuePartition(Struct):
    partition_index: int = int32("0+")
    from_offset: int = int64("0+")


class QueueTopic(Struct):
    name: str = string("0+")
    partitions: list[QueuePartition] = array(QueuePartition, "0+")


class DescribeQueuesRequest(Message, api_key=ApiKey.DESCRIBE_QUEUES, versions="0", flexible="0+"):
    group_id: str = string("0+")
    topics: list[QueueTopic] = array(QueueTopic, "0+")
    runs_max: int = int32("0+")


class DescribedRun(Struct):
    """Neighbouring records that are alike."""

    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    state: str = string("0+")
    delivery_count: int = int16("0+")
    member_id: str = string("0+")
    cause: str = string("0+")
    is_revived: bool = boolean("0+")
    age_ms: int = int64("0+", default=UNKNOWN_MS)
    left_ms: int = int64("0+", default=UNKNOWN_MS)


class DescribedQueuePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    start_offset: int = int64("0+")
    window_end_offset: int = int64("0+")
    log_start_offset: int = int64("0+")
    log_end_offset: int = int64("0+")
    available: int = int64("0+")
    locked: int = int64("0+")
    parked: int = int64("0+")
    archiving: int = int64("0+")
    revived: int = int64("0+")
    runs: list[DescribedRun] = array(DescribedRun, "0+")
    next_offset: int = int64("0+", default=ALL_TOLD)


class DescribedQueueTopic(Struct):
    name: str = string("0+")
    partitions: list[DescribedQueuePartition] = array(DescribedQueuePartition, "0+")


class DescribeQueuesResponse(Message, api_key=ApiKey.DESCRIBE_QUEUES, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    record_locks_max: int = int32("0+")
    delivery_count_limit: int = int16("0+")
    lock_duration_ms: int = int32("0+")
    read_committed: bool = boolean("0+")
    topics: list[DescribedQueueTopic] = array(DescribedQueueTopic, "0+")
