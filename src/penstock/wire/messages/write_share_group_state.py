"""WriteShareGroupState: what changed in the state of share-partitions."""

from __future__ import annotations

from penstock.base.ids import Uuid
from penstock.wire.apis import OUR_TAGS_FROM, ApiKey
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
    uuid,
)


class StateBatch(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_state: int = int8("0+")
    delivery_count: int = int16("0+")
    cause: int = int8("0+", tag=OUR_TAGS_FROM)
    """Why a record becomes a dead letter: not Kafka's, whose brokers do not persist it."""
    replaces: bool = boolean("0+", tag=OUR_TAGS_FROM + 1)
    """Whether it stands over what is persisted of these records: not Kafka's, where a record only
    moves on.
    """


class PartitionData(Struct):
    partition: int = int32("0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = array(StateBatch, "0+")


class WriteStateData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class WriteShareGroupStateRequest(
    Message, api_key=ApiKey.WRITE_SHARE_GROUP_STATE, versions="0-1", flexible="0+"
):
    group_id: str = string("0+")
    topics: list[WriteStateData] = array(WriteStateData, "0+")


class PartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class WriteStateResult(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class WriteShareGroupStateResponse(
    Message, api_key=ApiKey.WRITE_SHARE_GROUP_STATE, versions="0-1", flexible="0+"
):
    results: list[WriteStateResult] = array(WriteStateResult, "0+")
