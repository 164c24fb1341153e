"""AlterPartitionReassignments: move partitions to other replicas, or cancel it."""

from __future__ import annotations

from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, Struct, array, boolean, int16, int32, string


class ReassignablePartition(Struct):
    partition_index: int = int32("0+")
    replicas: list[int] | None = array(int32, "0+", nullable="0+", default=None)


class ReassignableTopic(Struct):
    name: str = string("0+")
    partitions: list[ReassignablePartition] = array(ReassignablePartition, "0+")


class AlterPartitionReassignmentsRequest(
    Message, api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0-1", flexible="0+"
):
    timeout_ms: int = int32("0+", default=60_000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic, "0+")


class ReassignablePartitionResponse(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class ReassignableTopicResponse(Struct):
    name: str = string("0+")
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse, "0+")


class AlterPartitionReassignmentsResponse(
    Message, api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0-1", flexible="0+"
):
    throttle_time_ms: int = int32("0+")
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse, "0+")
