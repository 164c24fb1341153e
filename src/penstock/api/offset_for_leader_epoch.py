"""OffsetForLeaderEpoch (23), versions 2 to 4: where a leader epoch ends, for truncation checks."""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.broker import Broker
from penstock.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


@handler(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse)
def offset_for_leader_epoch(
    broker: Broker, request: Request[OffsetForLeaderEpochRequest]
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end_of_epoch(broker, topic.topic, p) for p in topic.partitions],
            )
            for topic in request.body.topics
        ]
    )


def _end_of_epoch(broker: Broker, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = broker.replicas.leader_of(topic, wanted.partition)
        partition.check_leader_epoch(wanted.current_leader_epoch)
    except ApiError as e:
        return EpochEndOffset(error_code=e.code, partition=wanted.partition)
    epoch, end_offset = partition.end_of_epoch(wanted.leader_epoch)
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
