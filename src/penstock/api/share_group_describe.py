"""ShareGroupDescribe (77), version 1: state and members of share groups (KIP-932)."""

from __future__ import annotations

from penstock.api.described import describe_each
from penstock.api.registry import Request, handler
from penstock.serving.services import Services
from penstock.wire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


@handler(ShareGroupDescribeRequest, ShareGroupDescribeResponse)
async def share_group_describe(
    services: Services, request: Request[ShareGroupDescribeRequest]
) -> ShareGroupDescribeResponse:
    answer: ShareGroupDescribeResponse = await describe_each(
        services,
        request,
        ShareGroupDescribeResponse,
        DescribedGroup,
        is_served=services.cluster.has_share_groups,
    )
    return answer
