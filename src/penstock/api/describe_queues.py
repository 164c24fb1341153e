"""DescribeQueues (20002), version 0: what of share-partitions is available, held, waits. Ours.

A node answers for the partitions that it leads, the others have NOT_LEADER_OR_FOLLOWER. An answer
has `runs_max` runs of records, at most 1,000; where they are more, `next_offset` is from where to
ask again.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError, ErrorCode
from penstock.serving.services import Services
from penstock.wire.messages.describe_queues import DescribeQueuesRequest, DescribeQueuesResponse


@handler(DescribeQueuesRequest, DescribeQueuesResponse)
async def describe_queues(
    services: Services, request: Request[DescribeQueuesRequest]
) -> DescribeQueuesResponse:
    if not services.cluster.has_share_groups:
        return DescribeQueuesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        return await services.queues.describe(request.principal, request.body)
    except ApiError as e:
        return DescribeQueuesResponse(error_code=e.code, error_message=e.message)
