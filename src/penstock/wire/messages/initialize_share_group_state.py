"""InitializeShareGroupState: begin the state of share-partitions."""

from __future__ import annotations

from penstock.base.ids import Uuid
from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, Struct, array, int16, int32, int64, string, uuid


class PartitionData(Struct):
    partition: int = int32("0+")
    state_epoch: int = int32("0+")
    start_offset: int = int64("0+")


class InitializeStateData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class InitializeShareGroupStateRequest(
    Message, api_key=ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions="0", flexible="0+"
):
    group_id: str = string("0+")
    topics: list[InitializeStateData] = array(InitializeStateData, "0+")


class PartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class InitializeStateResult(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class InitializeShareGroupStateResponse(
    Message, api_key=ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions="0", flexible="0+"
):
    results: list[InitializeStateResult] = array(InitializeStateResult, "0+")
