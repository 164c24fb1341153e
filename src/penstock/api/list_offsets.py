"""ListOffsets (2), versions 1 to 11: offsets by time and by the special times of Kafka.

A follower (replica id) gets the offsets of the log itself. A request for many partitions is
answered in turns; what each of the special times means is in `serving.offsets`.
"""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.api.registry import LOGS_AT_ONCE_MAX, Request, handler
from penstock.base.errors import ApiError, ErrorCode
from penstock.net.turn import Turn
from penstock.serving.offsets import (
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    FOLLOWER,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    OffsetLookup,
    TimestampOffset,
    asks_for_record,
)
from penstock.serving.services import Services
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

# From which version on each special time may be asked for.
_SPECIAL_FROM = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
LEADER_EPOCH_FROM = 4


@handler(ListOffsetsRequest, ListOffsetsResponse)
def list_offsets(
    services: Services, request: Request[ListOffsetsRequest]
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    body = request.body
    isolation = FOLLOWER if body.replica_id >= 0 else body.isolation_level
    lookup = services.offsets.lookup(request.principal, isolation)
    if sum(len(topic.partitions) for topic in body.topics) > LOGS_AT_ONCE_MAX or any(
        asks_for_record(wanted.timestamp) for topic in body.topics for wanted in topic.partitions
    ):
        return _list_in_turns(lookup, request)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _mark(lookup, topic.name, w, request.version) for w in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


async def _list_in_turns(
    lookup: OffsetLookup, request: Request[ListOffsetsRequest]
) -> ListOffsetsResponse:
    """Look for records where that is asked for, and let others run in between."""
    response, turn, version = ListOffsetsResponse(), Turn(), request.version
    for topic in request.body.topics:
        answers = ListOffsetsTopicResponse(name=topic.name)
        response.topics.append(answers)
        for wanted in topic.partitions:
            answers.partitions.append(
                await _record(lookup, topic.name, wanted, version)
                if asks_for_record(wanted.timestamp)
                else _mark(lookup, topic.name, wanted, version)
            )
            if turn.is_over:
                await turn.next()
    return response


def _mark(
    lookup: OffsetLookup, topic: str, wanted: ListOffsetsPartition, version: int
) -> ListOffsetsPartitionResponse:
    try:
        _check_version(wanted, version)
        found = lookup.mark(
            topic, wanted.partition_index, wanted.current_leader_epoch, wanted.timestamp
        )
    except ApiError as e:
        return _refused(wanted, e.code)
    return _found(wanted, version, found)


async def _record(
    lookup: OffsetLookup, topic: str, wanted: ListOffsetsPartition, version: int
) -> ListOffsetsPartitionResponse:
    try:
        _check_version(wanted, version)
        found = await lookup.record(
            topic, wanted.partition_index, wanted.current_leader_epoch, wanted.timestamp
        )
    except ApiError as e:
        return _refused(wanted, e.code)
    return _found(wanted, version, found)


def _check_version(wanted: ListOffsetsPartition, version: int) -> None:
    if version < _SPECIAL_FROM.get(wanted.timestamp, 0):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)


def _refused(wanted: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code)


def _found(
    wanted: ListOffsetsPartition, version: int, found: TimestampOffset
) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch if version >= LEADER_EPOCH_FROM else -1,
    )
