"""ShareGroupDescribe (77), version 1: state and members of share groups (KIP-932)."""

from __future__ import annotations

from penstock.api.groups import to_shard
from penstock.api.registry import Request, handler
from penstock.api.shards import together
from penstock.base.errors import ErrorCode
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
    group_ids = request.body.group_ids
    if not services.cluster.has_share_groups:
        code = ErrorCode.UNSUPPORTED_VERSION
        return ShareGroupDescribeResponse(
            groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in group_ids]
        )
    unnamed = [
        DescribedGroup(group_id="", error_code=ErrorCode.INVALID_GROUP_ID)
        for group_id in group_ids
        if not group_id
    ]
    answers = await together(
        to_shard(
            services,
            request,
            group_id,
            ShareGroupDescribeRequest(group_ids=[group_id]),
            ShareGroupDescribeResponse,
        )
        for group_id in group_ids
        if group_id
    )
    groups = unnamed + [group for answer in answers for group in answer.groups]
    if request.body.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = services.groups.operations(
                    request.principal, group.group_id
                )
    return ShareGroupDescribeResponse(groups=groups)
