"""ListOffsets (2), versions 1 to 11: offsets by time and by the special times of Kafka.

There is no remote tier, so the earliest local offset is the earliest, and there is no
tiered offset. A new leader that does not know yet how far its predecessor had committed
answers OFFSET_NOT_AVAILABLE where that matters. A follower (replica id) is told of the log
itself.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError, ErrorCode, StorageError
from penstock.partitions.partition import Partition
from penstock.serving.broker import Broker
from penstock.serving.look import READ_COMMITTED
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
# From which version on each special time may be asked for.
_SPECIAL_FROM = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
LEADER_EPOCH_FROM = 4
NOT_FOUND = (-1, -1, -1)
_FOLLOWER = -1  # in the place of an isolation level: sees everything


@handler(ListOffsetsRequest, ListOffsetsResponse)
def list_offsets(broker: Broker, request: Request[ListOffsetsRequest]) -> ListOffsetsResponse:
    body = request.body
    if body.replica_id >= 0:
        isolation = _FOLLOWER
    else:
        isolation = body.isolation_level
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _list(broker, topic.name, wanted, request.version, isolation)
                    for wanted in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def _list(
    broker: Broker, topic: str, wanted: ListOffsetsPartition, version: int, isolation: int
) -> ListOffsetsPartitionResponse:
    index = wanted.partition_index
    try:
        if version < _SPECIAL_FROM.get(wanted.timestamp, 0):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        partition = broker.replicas.leader_of(topic, index)
        partition.check_leader_epoch(wanted.current_leader_epoch)
        timestamp, offset, epoch = _find(partition, wanted.timestamp, isolation)
    except ApiError as e:
        return ListOffsetsPartitionResponse(partition_index=index, error_code=e.code)
    except StorageError:
        return ListOffsetsPartitionResponse(
            partition_index=index, error_code=ErrorCode.KAFKA_STORAGE_ERROR
        )
    return ListOffsetsPartitionResponse(
        partition_index=index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch if version >= LEADER_EPOCH_FROM else -1,
    )


def _find(partition: Partition, timestamp: int, isolation: int) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch) of the record or the end that `timestamp` asks for."""
    log = partition.log
    end = _end(partition, isolation)
    uncertain = isolation != _FOLLOWER and partition.offset_not_available
    if timestamp == LATEST:
        if uncertain:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return -1, end, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        if start == log.log_end_offset:
            return -1, start, partition.leader_epoch
        return -1, start, log.epochs.epoch_for_offset(start)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOT_FOUND
    if timestamp < MAX_TIMESTAMP:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"there is no special timestamp {timestamp}")
    found = (
        log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    )
    if found is None or found.offset >= end:
        if uncertain:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return NOT_FOUND
    return found.timestamp, found.offset, found.leader_epoch


def _end(partition: Partition, isolation: int) -> int:
    """Where what the asker may see ends."""
    if isolation == _FOLLOWER:
        return partition.log.log_end_offset
    if isolation == READ_COMMITTED:
        return partition.last_stable_offset
    return partition.high_watermark
