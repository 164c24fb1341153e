"""ConsumerGroupDescribe (69), versions 0 to 1: state and members of consumer groups (KIP-848)."""

from __future__ import annotations

from penstock.api.consumer_group_heartbeat import serves_consumer_protocol
from penstock.api.groups import to_shard
from penstock.api.registry import Request, handler
from penstock.api.shards import together
from penstock.base.errors import ErrorCode
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
    if not serves_consumer_protocol(services):
        return ConsumerGroupDescribeResponse(
            groups=[
                DescribedGroup(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION)
                for group_id in request.body.group_ids
            ]
        )
    unnamed = [
        DescribedGroup(group_id="", error_code=ErrorCode.INVALID_GROUP_ID)
        for group_id in request.body.group_ids
        if not group_id
    ]
    answers = await together(
        to_shard(
            services,
            request,
            group_id,
            ConsumerGroupDescribeRequest(group_ids=[group_id]),
            ConsumerGroupDescribeResponse,
        )
        for group_id in request.body.group_ids
        if group_id
    )
    groups = unnamed + [group for answer in answers for group in answer.groups]
    if request.body.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = services.groups.operations(
                    request.principal, group.group_id
                )
    return ConsumerGroupDescribeResponse(groups=groups)
