"""StreamsGroupHeartbeat: the whole protocol of members of streams groups (KIP-1071)."""

from __future__ import annotations

from penstock.wire.apis import ApiKey
from penstock.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
)


class KeyValue(Struct):
    key: str = string("0+")
    value: str = string("0+")


class TopicInfo(Struct):
    name: str = string("0+")
    partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    topic_configs: list[KeyValue] = array(KeyValue, "0+")


class CopartitionGroup(Struct):
    source_topics: list[int] = array(int16, "0+")
    source_topic_regex: list[int] = array(int16, "0+")
    repartition_source_topics: list[int] = array(int16, "0+")


class Subtopology(Struct):
    subtopology_id: str = string("0+")
    source_topics: list[str] = array(string, "0+")
    source_topic_regex: list[str] = array(string, "0+")
    state_changelog_topics: list[TopicInfo] = array(TopicInfo, "0+")
    repartition_sink_topics: list[str] = array(string, "0+")
    repartition_source_topics: list[TopicInfo] = array(TopicInfo, "0+")
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup, "0+")


class Topology(Struct):
    epoch: int = int32("0+")
    subtopologies: list[Subtopology] = array(Subtopology, "0+")


class TaskIds(Struct):
    subtopology_id: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class Endpoint(Struct):
    host: str = string("0+")
    port: int = uint16("0+")


class TaskOffset(Struct):
    subtopology_id: str = string("0+")
    partition: int = int32("0+")
    offset: int = int64("0+")


class StreamsGroupHeartbeatRequest(
    Message, api_key=ApiKey.STREAMS_GROUP_HEARTBEAT, versions="0", flexible="0+"
):
    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    endpoint_information_epoch: int = int32("0+")
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = int32("0+", default=-1)
    topology: Topology | None = struct(Topology, "0+", nullable="0+", default=None)
    active_tasks: list[TaskIds] | None = array(TaskIds, "0+", nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, "0+", nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, "0+", nullable="0+", default=None)
    process_id: str | None = string("0+", nullable="0+", default=None)
    user_endpoint: Endpoint | None = struct(Endpoint, "0+", nullable="0+", default=None)
    client_tags: list[KeyValue] | None = array(KeyValue, "0+", nullable="0+", default=None)
    task_offsets: list[TaskOffset] | None = array(TaskOffset, "0+", nullable="0+", default=None)
    task_end_offsets: list[TaskOffset] | None = array(TaskOffset, "0+", nullable="0+", default=None)
    shutdown_application: bool = boolean("0+")


class Status(Struct):
    status_code: int = int8("0+")
    status_detail: str = string("0+")


class TopicPartition(Struct):
    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class EndpointToPartitions(Struct):
    user_endpoint: Endpoint = struct(Endpoint, "0+")
    active_partitions: list[TopicPartition] = array(TopicPartition, "0+")
    standby_partitions: list[TopicPartition] = array(TopicPartition, "0+")


class StreamsGroupHeartbeatResponse(
    Message, api_key=ApiKey.STREAMS_GROUP_HEARTBEAT, versions="0", flexible="0+"
):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    acceptable_recovery_lag: int = int32("0+")
    task_offset_interval_ms: int = int32("0+")
    status: list[Status] | None = array(Status, "0+", nullable="0+")
    active_tasks: list[TaskIds] | None = array(TaskIds, "0+", nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, "0+", nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, "0+", nullable="0+", default=None)
    endpoint_information_epoch: int = int32("0+")
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(
        EndpointToPartitions, "0+", nullable="0+", default=None
    )
