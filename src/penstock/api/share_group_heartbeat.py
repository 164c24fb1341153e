"""ShareGroupHeartbeat (76), version 1: the whole protocol of members of share groups (KIP-932).

Where the level of share.version is 0, its requests are answered UNSUPPORTED_VERSION, as those of
all APIs of share groups.
"""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.api.groups import to_shard
from penstock.api.registry import Request, handler
from penstock.base.errors import ErrorCode
from penstock.serving.services import Services
from penstock.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)


@handler(ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse)
def share_group_heartbeat(
    services: Services, request: Request[ShareGroupHeartbeatRequest]
) -> ShareGroupHeartbeatResponse | Awaitable[ShareGroupHeartbeatResponse]:
    if not services.cluster.has_share_groups:
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return to_shard(
        services, request, request.body.group_id, request.body, ShareGroupHeartbeatResponse
    )
