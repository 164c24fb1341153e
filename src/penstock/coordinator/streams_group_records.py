"""The records of streams groups (KIP-1071) in `__consumer_offsets`, as Kafka 4.3 writes them.

What a member tells of its topology, its endpoint and its tags, and the tasks of a target, have the
same bytes here as in StreamsGroupHeartbeat, so they are its structures.
"""

from __future__ import annotations

from penstock.wire.messages.streams_group_heartbeat import (
    Endpoint,
    KeyValue,
    Subtopology,
    TaskIds,
)
from penstock.wire.schema import Message, Struct, array, int8, int32, int64, string
from penstock.wire.schema import struct as structure


# Kafka calls it `TaskIds`, too.
class TaskIdsWithEpochs(Struct):
    subtopology_id: str = string("0+")
    partitions: list[int] = array(int32, "0+")
    assignment_epochs: list[int] | None = array(int32, "0+", nullable="0+", tag=0)
    """Of active tasks, in the order of `partitions`."""


class LastAssignmentConfig(Struct):
    key: str = string("0+")
    value: str = string("0+")


class StreamsGroupMetadataKey(Message, api_key=17, versions="0"):
    group_id: str = string("0")


class StreamsGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    metadata_hash: int = int64("0+")
    validated_topology_epoch: int = int32("0+", tag=0, default=-1)
    last_assignment_configs: list[LastAssignmentConfig] | None = array(
        LastAssignmentConfig, "0+", nullable="0+", tag=1
    )


class StreamsGroupMemberMetadataKey(Message, api_key=19, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class StreamsGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    topology_epoch: int = int32("0+")
    process_id: str = string("0+")
    user_endpoint: Endpoint | None = structure(Endpoint, "0+", nullable="0+", default=None)
    client_tags: list[KeyValue] = array(KeyValue, "0+")


class StreamsGroupTargetAssignmentMetadataKey(Message, api_key=20, versions="0"):
    group_id: str = string("0")


class StreamsGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", tag=0)


class StreamsGroupTargetAssignmentMemberKey(Message, api_key=21, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class StreamsGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    active_tasks: list[TaskIds] = array(TaskIds, "0+")
    standby_tasks: list[TaskIds] = array(TaskIds, "0+")
    warmup_tasks: list[TaskIds] = array(TaskIds, "0+")


class StreamsGroupCurrentMemberAssignmentKey(Message, api_key=22, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class StreamsGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    active_tasks: list[TaskIdsWithEpochs] = array(TaskIdsWithEpochs, "0+")
    standby_tasks: list[TaskIdsWithEpochs] = array(TaskIdsWithEpochs, "0+")
    warmup_tasks: list[TaskIdsWithEpochs] = array(TaskIdsWithEpochs, "0+")
    active_tasks_pending_revocation: list[TaskIdsWithEpochs] = array(TaskIdsWithEpochs, "0+")
    standby_tasks_pending_revocation: list[TaskIdsWithEpochs] = array(TaskIdsWithEpochs, "0+")
    warmup_tasks_pending_revocation: list[TaskIdsWithEpochs] = array(TaskIdsWithEpochs, "0+")


class StreamsGroupTopologyKey(Message, api_key=23, versions="0"):
    group_id: str = string("0")


class StreamsGroupTopologyValue(Message, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    subtopologies: list[Subtopology] = array(Subtopology, "0+")
