"""DescribeShareGroupOffsets: where the share-partitions of groups begin, and their lag."""

from __future__ import annotations

from penstock.base.ids import Uuid
from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, Struct, array, int16, int32, int64, string, uuid


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str = string("0+")
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, "0+", nullable="0+"
    )


class DescribeShareGroupOffsetsRequest(
    Message, api_key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions="0-1", flexible="0+"
):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(
        DescribeShareGroupOffsetsRequestGroup, "0+"
    )


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = int32("0+")
    start_offset: int = int64("0+")
    leader_epoch: int = int32("0+")
    lag: int = int64("1+", default=-1, ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string("0+")
    topic_id: Uuid = uuid("0+")
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(
        DescribeShareGroupOffsetsResponsePartition, "0+"
    )


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str = string("0+")
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(
        DescribeShareGroupOffsetsResponseTopic, "0+"
    )
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class DescribeShareGroupOffsetsResponse(
    Message, api_key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions="0-1", flexible="0+"
):
    throttle_time_ms: int = int32("0+")
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(
        DescribeShareGroupOffsetsResponseGroup, "0+"
    )
