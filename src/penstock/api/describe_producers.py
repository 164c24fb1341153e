"""DescribeProducers (61), version 0: the idempotent and transactional producers of partitions."""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)


@handler(DescribeProducersRequest, DescribeProducersResponse)
def describe_producers(
    services: Services, request: Request[DescribeProducersRequest]
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _describe(services, request.principal, topic.name, i)
                    for i in topic.partition_indexes
                ],
            )
            for topic in request.body.topics
        ]
    )


def _describe(services: Services, principal: str, topic: str, index: int) -> PartitionResponse:
    try:
        producers = services.records.producers(principal, topic, index)
    except ApiError as e:
        return PartitionResponse(
            partition_index=index, error_code=e.code, error_message=e.message or None
        )
    return PartitionResponse(partition_index=index, active_producers=producers)
