"""ListOffsets as clients ask it: many partitions in one request, and what the leader says of each.

Pure. The protocol has two times that are places: the start and the end of a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from penstock.base.errors import ErrorCode
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

Partition: TypeAlias = tuple[str, int]
LIST_OFFSETS_VERSION: Final = 2
START_OF_LOG: Final = -2
END_OF_LOG: Final = -1
PASSING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # by a leader; what nobody knows is not asked for
    }
)
"""What a leader says while leaders move."""


class Answered(NamedTuple):
    """A partition is in exactly one of the two."""

    found: dict[Partition, int]
    refused: dict[Partition, ErrorCode]


def offsets_request(wanted: Mapping[Partition, int], *, committed: bool) -> ListOffsetsRequest:
    """Asks for the first offset of each time or later; of committed data alone if `committed`."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), time_ms in wanted.items():
        one = ListOffsetsPartition(partition_index=partition, timestamp=time_ms)
        topics.setdefault(topic, []).append(one)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[ListOffsetsTopic(name=t, partitions=p) for t, p in topics.items()],
    )


def read_offsets(answer: ListOffsetsResponse) -> Answered:
    """What the leader says; the offset is -1 where no message is so new."""
    answered = Answered({}, {})
    for topic in answer.topics:
        for one in topic.partitions:
            place = topic.name, one.partition_index
            if one.error_code:
                answered.refused[place] = ErrorCode(one.error_code)
            else:
                answered.found[place] = one.offset
    return answered
