"""ShareGroupHeartbeat: the whole protocol of members of share groups (KIP-932)."""

from __future__ import annotations

from penstock.base.ids import Uuid
from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, Struct, array, int16, int32, string, struct, uuid


class ShareGroupHeartbeatRequest(
    Message, api_key=ApiKey.SHARE_GROUP_HEARTBEAT, versions="1", flexible="0+"
):
    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    rack_id: str | None = string("0+", nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = array(string, "0+", nullable="0+", default=None)


class TopicPartitions(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: list[int] = array(int32, "0+")


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")


class ShareGroupHeartbeatResponse(
    Message, api_key=ApiKey.SHARE_GROUP_HEARTBEAT, versions="1", flexible="0+"
):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+", default=None)
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: Assignment | None = struct(Assignment, "0+", nullable="0+", default=None)
