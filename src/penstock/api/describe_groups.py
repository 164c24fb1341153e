"""DescribeGroups (15), versions 0 to 6: state and members of classic groups."""

from __future__ import annotations

from penstock.api.groups import to_shard
from penstock.api.registry import Request, handler
from penstock.api.shards import together
from penstock.serving.services import Services
from penstock.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse


@handler(DescribeGroupsRequest, DescribeGroupsResponse)
async def describe_groups(
    services: Services, request: Request[DescribeGroupsRequest]
) -> DescribeGroupsResponse:
    answers = await together(
        to_shard(
            services,
            request,
            group_id,
            DescribeGroupsRequest(groups=[group_id]),
            DescribeGroupsResponse,
        )
        for group_id in request.body.groups
    )
    groups = [group for answer in answers for group in answer.groups]
    if request.body.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = services.groups.operations(
                    request.principal, group.group_id
                )
    return DescribeGroupsResponse(groups=groups)
