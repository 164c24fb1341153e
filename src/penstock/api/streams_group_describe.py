"""StreamsGroupDescribe (89), version 0: state, topology, members of streams groups (KIP-1071)."""

from __future__ import annotations

from penstock.api.described import describe_each
from penstock.api.registry import Request, handler
from penstock.api.streams_group_heartbeat import serves_streams_groups
from penstock.serving.services import Services
from penstock.wire.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)


@handler(StreamsGroupDescribeRequest, StreamsGroupDescribeResponse)
async def streams_group_describe(
    services: Services, request: Request[StreamsGroupDescribeRequest]
) -> StreamsGroupDescribeResponse:
    answer: StreamsGroupDescribeResponse = await describe_each(
        services,
        request,
        StreamsGroupDescribeResponse,
        DescribedGroup,
        is_served=serves_streams_groups(services),
    )
    return answer
