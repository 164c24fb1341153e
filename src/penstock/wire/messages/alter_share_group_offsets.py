"""AlterShareGroupOffsets: move where the share-partitions of an empty group begin."""

from __future__ import annotations

from penstock.base.ids import Uuid
from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, Struct, array, int16, int32, int64, string, uuid


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int = int32("0+")
    start_offset: int = int64("0+")


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string("0+")
    partitions: list[AlterShareGroupOffsetsRequestPartition] = array(
        AlterShareGroupOffsetsRequestPartition, "0+"
    )


class AlterShareGroupOffsetsRequest(
    Message, api_key=ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions="0", flexible="0+"
):
    group_id: str = string("0+")
    topics: list[AlterShareGroupOffsetsRequestTopic] = array(
        AlterShareGroupOffsetsRequestTopic, "0+"
    )


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string("0+")
    topic_id: Uuid = uuid("0+")
    partitions: list[AlterShareGroupOffsetsResponsePartition] = array(
        AlterShareGroupOffsetsResponsePartition, "0+"
    )


class AlterShareGroupOffsetsResponse(
    Message, api_key=ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions="0", flexible="0+"
):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = array(
        AlterShareGroupOffsetsResponseTopic, "0+"
    )
