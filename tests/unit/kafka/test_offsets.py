"""ListOffsets: many partitions in one request, and a refusal that is never taken for an offset."""

from __future__ import annotations

from penstock.base.errors import ErrorCode
from penstock.kafka.offsets import (
    END_OF_LOG,
    LIST_OFFSETS_VERSION,
    START_OF_LOG,
    offsets_request,
    read_offsets,
)
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)


def test_one_request_asks_for_many_partitions() -> None:
    wanted = {("t", 0): START_OF_LOG, ("u", 3): END_OF_LOG, ("t", 1): 5}
    sent = offsets_request(wanted, committed=True).encode(LIST_OFFSETS_VERSION)
    request, _ = ListOffsetsRequest.decode_from(sent, 0, LIST_OFFSETS_VERSION)
    asked = {
        (topic.name, p.partition_index): p.timestamp
        for topic in request.topics
        for p in topic.partitions
    }
    assert (asked, request.isolation_level, len(request.topics)) == (wanted, 1, 2)


def test_what_is_refused_has_no_offset() -> None:
    refused = ListOffsetsPartitionResponse(
        partition_index=1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, offset=-1
    )
    found = ListOffsetsPartitionResponse(partition_index=0, offset=42)
    answer = ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse(name="t", partitions=[found, refused])]
    )
    answered = read_offsets(answer)
    assert answered.found == {("t", 0): 42}
    assert answered.refused == {("t", 1): ErrorCode.NOT_LEADER_OR_FOLLOWER}
