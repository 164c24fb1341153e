"""DeleteShareGroupState: forget the state of share-partitions."""

from __future__ import annotations

from penstock.base.ids import Uuid
from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, Struct, array, int16, int32, string, uuid


class PartitionData(Struct):
    partition: int = int32("0+")


class DeleteStateData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class DeleteShareGroupStateRequest(
    Message, api_key=ApiKey.DELETE_SHARE_GROUP_STATE, versions="0", flexible="0+"
):
    group_id: str = string("0+")
    topics: list[DeleteStateData] = array(DeleteStateData, "0+")


class PartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class DeleteStateResult(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class DeleteShareGroupStateResponse(
    Message, api_key=ApiKey.DELETE_SHARE_GROUP_STATE, versions="0", flexible="0+"
):
    results: list[DeleteStateResult] = array(DeleteStateResult, "0+")
