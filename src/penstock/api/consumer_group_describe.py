"""ConsumerGroupDescribe (69), versions 0 to 1: state and members of consumer groups (KIP-848)."""

from __future__ import annotations

from penstock.api.consumer_group_heartbeat import serves_consumer_protocol
from penstock.api.described import describe_each
from penstock.api.registry import Request, handler
from penstock.serving.services import Services
from penstock.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


@handler(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse)
async def consumer_group_describe(
    services: Services, request: Request[ConsumerGroupDescribeRequest]
) -> ConsumerGroupDescribeResponse:
    answer: ConsumerGroupDescribeResponse = await describe_each(
        services,
        request,
        ConsumerGroupDescribeResponse,
        DescribedGroup,
        is_served=serves_consumer_protocol(services),
    )
    return answer
