"""ListOffsets (2), versions 1 to 11: offsets by time and by the special times of Kafka.

There is no remote tier, so the earliest local offset is the earliest, and there is no
tiered offset. A new leader that does not know yet how far its predecessor had committed
answers OFFSET_NOT_AVAILABLE where that matters. A follower (replica id) is told of the log
itself.

Records are looked for beside the event loop (`log.time_lookup`), and a request for many partitions
is answered in turns.
"""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError, ErrorCode, StorageError
from penstock.log.time_lookup import MAX_TIMESTAMP, Allowance, TimestampOffset
from penstock.net.turn import Turn
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

LATEST, EARLIEST = -1, -2
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
# From which version on each special time may be asked for.
_SPECIAL_FROM = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
LEADER_EPOCH_FROM = 4
NOT_FOUND = (-1, -1, -1)
PARTITIONS_AT_ONCE_MAX = 20
"""Of more, the logs may have to be opened, which takes half a millisecond each."""
_FOLLOWER = -1  # in the place of an isolation level: sees everything


@handler(ListOffsetsRequest, ListOffsetsResponse)
def list_offsets(
    broker: Broker, request: Request[ListOffsetsRequest]
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    topics = request.body.topics
    wanted = [partition for topic in topics for partition in topic.partitions]
    if len(wanted) <= PARTITIONS_AT_ONCE_MAX and not any(_by_time(w.timestamp) for w in wanted):
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[_told(broker, topic.name, w, request) for w in topic.partitions],
                )
                for topic in topics
            ]
        )
    return _list_in_turns(broker, request)


async def _list_in_turns(
    broker: Broker, request: Request[ListOffsetsRequest]
) -> ListOffsetsResponse:
    """Look for records where that is asked for, and let others run in between."""
    response, allowance, turn = ListOffsetsResponse(), Allowance(), Turn()
    for topic in request.body.topics:
        answers = ListOffsetsTopicResponse(name=topic.name)
        response.topics.append(answers)
        for wanted in topic.partitions:
            answers.partitions.append(
                await _told_by_time(broker, topic.name, wanted, request, allowance)
                if _by_time(wanted.timestamp)
                else _told(broker, topic.name, wanted, request)
            )
            if turn.is_over:
                await turn.next()
    return response


def _by_time(timestamp: int) -> bool:
    """Whether it asks for a record, and not for a mark of the log."""
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


def _told(
    broker: Broker,
    topic: str,
    wanted: ListOffsetsPartition,
    request: Request[ListOffsetsRequest],
) -> ListOffsetsPartitionResponse:
    try:
        partition = _leader(broker, topic, wanted, request)
        found = _find(partition, wanted.timestamp, _isolation(request))
    except ApiError as e:
        return _refused(wanted, e.code)
    except StorageError:
        return _refused(wanted, ErrorCode.KAFKA_STORAGE_ERROR)
    return _found(wanted, request, found)


async def _told_by_time(
    broker: Broker,
    topic: str,
    wanted: ListOffsetsPartition,
    request: Request[ListOffsetsRequest],
    allowance: Allowance,
) -> ListOffsetsPartitionResponse:
    try:
        partition = _leader(broker, topic, wanted, request)
        record = await _lookup(broker, partition, wanted.timestamp, allowance)
        # It took its time: somebody else may lead the partition now, or it may be gone.
        if _leader(broker, topic, wanted, request) is not partition:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        found = _visible(partition, record, _isolation(request))
    except ApiError as e:
        return _refused(wanted, e.code)
    except StorageError:
        return _refused(wanted, ErrorCode.KAFKA_STORAGE_ERROR)
    return _found(wanted, request, found)


async def _lookup(
    broker: Broker, partition: Partition, timestamp: int, allowance: Allowance
) -> TimestampOffset | None:
    try:
        return await broker.logs.lookups.find(partition.log, timestamp, allowance)
    except StorageError:
        if broker.replicas.hosted(partition.log.topic_partition) is partition:
            raise
        return None  # deleted meanwhile, as the next look at its leader says


def _refused(wanted: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code)


def _found(
    wanted: ListOffsetsPartition,
    request: Request[ListOffsetsRequest],
    found: tuple[int, int, int],
) -> ListOffsetsPartitionResponse:
    timestamp, offset, epoch = found
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch if request.version >= LEADER_EPOCH_FROM else -1,
    )


def _leader(
    broker: Broker,
    topic: str,
    wanted: ListOffsetsPartition,
    request: Request[ListOffsetsRequest],
) -> Partition:
    if request.version < _SPECIAL_FROM.get(wanted.timestamp, 0):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    partition = broker.replicas.leader_of(topic, wanted.partition_index)
    partition.check_leader_epoch(wanted.current_leader_epoch)
    return partition


def _isolation(request: Request[ListOffsetsRequest]) -> int:
    body = request.body
    return _FOLLOWER if body.replica_id >= 0 else body.isolation_level


def _find(partition: Partition, timestamp: int, isolation: int) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch) of the mark of the log that `timestamp` asks for."""
    log = partition.log
    if timestamp == LATEST:
        if _is_uncertain(partition, isolation):
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return -1, _end(partition, isolation), partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        if start == log.log_end_offset:
            return -1, start, partition.leader_epoch
        return -1, start, log.epochs.epoch_for_offset(start)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOT_FOUND
    raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"there is no special timestamp {timestamp}")


def _visible(
    partition: Partition, found: TimestampOffset | None, isolation: int
) -> tuple[int, int, int]:
    """What the asker is told of a record that was found."""
    if found is not None and found.offset < _end(partition, isolation):
        return found
    if _is_uncertain(partition, isolation):
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
    return NOT_FOUND


def _is_uncertain(partition: Partition, isolation: int) -> bool:
    return isolation != _FOLLOWER and partition.offset_not_available


def _end(partition: Partition, isolation: int) -> int:
    """Where what the asker may see ends."""
    if isolation == _FOLLOWER:
        return partition.log.log_end_offset
    if isolation == READ_COMMITTED:
        return partition.last_stable_offset
    return partition.high_watermark
