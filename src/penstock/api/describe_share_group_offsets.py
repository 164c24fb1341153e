"""DescribeShareGroupOffsets (90), versions 0 to 1: where the partitions of share groups start, and
from version 1 on their lag.
"""

from __future__ import annotations

import asyncio

from penstock.api.registry import Request, handler
from penstock.base.errors import ErrorCode
from penstock.serving.services import Services
from penstock.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)


@handler(DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse)
async def describe_share_group_offsets(
    services: Services, request: Request[DescribeShareGroupOffsetsRequest]
) -> DescribeShareGroupOffsetsResponse:
    async def one(
        asked: DescribeShareGroupOffsetsRequestGroup,
    ) -> DescribeShareGroupOffsetsResponseGroup:
        if not services.cluster.has_share_groups:
            return DescribeShareGroupOffsetsResponseGroup(
                group_id=asked.group_id, error_code=ErrorCode.UNSUPPORTED_VERSION
            )
        return await services.share_groups.describe_offsets(request.principal, asked)

    groups = await asyncio.gather(*(one(asked) for asked in request.body.groups))
    return DescribeShareGroupOffsetsResponse(groups=groups)
