"""OffsetForLeaderEpoch (23), versions 2 to 4: where a leader epoch ends, for truncation checks."""

from __future__ import annotations

from penstock.api.registry import LOGS_AT_ONCE_MAX, Request, handler
from penstock.auth.principal import Principal
from penstock.base.errors import ApiError
from penstock.base.steps import Steps
from penstock.serving.services import Services
from penstock.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


@handler(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, at_once_max=LOGS_AT_ONCE_MAX)
def offset_for_leader_epoch(
    services: Services, request: Request[OffsetForLeaderEpochRequest]
) -> Steps[OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse()
    for topic in request.body.topics:
        answers = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(answers)
        for wanted in topic.partitions:
            answers.partitions.append(
                _end_of_epoch(services, request.principal, topic.topic, wanted)
            )
            yield
    return response


def _end_of_epoch(
    services: Services, principal: Principal, topic: str, wanted: OffsetForLeaderPartition
) -> EpochEndOffset:
    try:
        epoch, end_offset = services.records.end_of_epoch(
            principal, topic, wanted.partition, wanted.current_leader_epoch, wanted.leader_epoch
        )
    except ApiError as e:
        return EpochEndOffset(error_code=e.code, partition=wanted.partition)
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
