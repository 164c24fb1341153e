"""DeleteShareGroupOffsets: take topics from an empty share group."""

from __future__ import annotations

from penstock.base.ids import Uuid
from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, Struct, array, int16, int32, string, uuid


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string("0+")


class DeleteShareGroupOffsetsRequest(
    Message, api_key=ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions="0", flexible="0+"
):
    group_id: str = string("0+")
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(
        DeleteShareGroupOffsetsRequestTopic, "0+"
    )


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string("0+")
    topic_id: Uuid = uuid("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class DeleteShareGroupOffsetsResponse(
    Message, api_key=ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions="0", flexible="0+"
):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(
        DeleteShareGroupOffsetsResponseTopic, "0+"
    )
