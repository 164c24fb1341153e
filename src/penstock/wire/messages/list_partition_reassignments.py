"""ListPartitionReassignments: the moves of partitions that are under way."""

from __future__ import annotations

from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, Struct, array, int16, int32, string


class ListPartitionReassignmentsTopics(Struct):
    name: str = string("0+")
    partition_indexes: list[int] = array(int32, "0+")


class ListPartitionReassignmentsRequest(
    Message, api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+"
):
    timeout_ms: int = int32("0+", default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, "0+", nullable="0+", default=None
    )


class OngoingPartitionReassignment(Struct):
    partition_index: int = int32("0+")
    replicas: list[int] = array(int32, "0+")
    adding_replicas: list[int] = array(int32, "0+")
    removing_replicas: list[int] = array(int32, "0+")


class OngoingTopicReassignment(Struct):
    name: str = string("0+")
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment, "0+")


class ListPartitionReassignmentsResponse(
    Message, api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+"
):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment, "0+")
