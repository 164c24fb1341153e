"""What an append and a read say of each partition: made by the services, encoded by the doors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from penstock.base.file_region import FileRegion
from penstock.base.ids import TopicKey

Records: TypeAlias = bytes | bytearray | memoryview | FileRegion
"""Record batches, as they were read or as the stretch of a file where they lie."""


class PartitionAnswer(NamedTuple):
    """What became of the records for one partition."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    leader_id: int = -1  # set only with NOT_LEADER_OR_FOLLOWER
    leader_epoch: int = -1
    record_errors: Sequence[int] = ()  # places in the batch of the records that are the reason


TopicAnswers: TypeAlias = list[tuple[TopicKey, list[PartitionAnswer]]]


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class PartitionData(NamedTuple):
    """What was read of one partition."""

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    records: Records = b""
    leader_id: int = -1  # with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH
    leader_epoch: int = -1
    diverging_epoch: int = -1
    diverging_end_offset: int = -1
    preferred_read_replica: int = -1


TopicData: TypeAlias = list[tuple[TopicKey, list[PartitionData]]]


class LeaderEndpoint(NamedTuple):
    """Where a leader that an answer names is reached."""

    id: int
    host: str
    port: int
    rack: str | None


_new_tuple = tuple.__new__


def appended(partition: int, base_offset: int, append_time: int, log_start: int) -> PartitionAnswer:
    """The answer for a partition that took its batch; cheaper than the constructor."""
    return _new_tuple(
        PartitionAnswer, (partition, 0, base_offset, append_time, log_start, None, -1, -1, ())
    )
