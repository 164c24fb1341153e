"""DescribeProducers (61), version 0: the idempotent and transactional producers of partitions."""

from __future__ import annotations

from penstock.api.registry import LOGS_AT_ONCE_MAX, Request, handler
from penstock.auth.principal import Principal
from penstock.base.errors import ApiError
from penstock.base.steps import Steps
from penstock.serving.services import Services
from penstock.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)


@handler(DescribeProducersRequest, DescribeProducersResponse, at_once_max=LOGS_AT_ONCE_MAX)
def describe_producers(
    services: Services, request: Request[DescribeProducersRequest]
) -> Steps[DescribeProducersResponse]:
    response = DescribeProducersResponse()
    for topic in request.body.topics:
        answers = TopicResponse(name=topic.name)
        response.topics.append(answers)
        for index in topic.partition_indexes:
            answers.partitions.append(_describe(services, request.principal, topic.name, index))
            yield
    return response


def _describe(
    services: Services, principal: Principal, topic: str, index: int
) -> PartitionResponse:
    try:
        producers = services.records.producers(principal, topic, index)
    except ApiError as e:
        return PartitionResponse(
            partition_index=index, error_code=e.code, error_message=e.message or None
        )
    return PartitionResponse(partition_index=index, active_producers=producers)
