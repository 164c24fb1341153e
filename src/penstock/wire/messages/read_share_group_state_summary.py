"""ReadShareGroupStateSummary: where share-partitions begin, without their records."""

from __future__ import annotations

from penstock.base.ids import Uuid
from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, Struct, array, int16, int32, int64, string, uuid


class PartitionData(Struct):
    partition: int = int32("0+")
    leader_epoch: int = int32("0+")


class ReadStateSummaryData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class ReadShareGroupStateSummaryRequest(
    Message, api_key=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions="0-1", flexible="0+"
):
    group_id: str = string("0+")
    topics: list[ReadStateSummaryData] = array(ReadStateSummaryData, "0+")


class PartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)


class ReadStateSummaryResult(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class ReadShareGroupStateSummaryResponse(
    Message, api_key=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions="0-1", flexible="0+"
):
    results: list[ReadStateSummaryResult] = array(ReadStateSummaryResult, "0+")
