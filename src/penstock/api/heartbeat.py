"""Heartbeat (12), versions 0 to 4: a member of a classic group is alive."""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.api.groups import to_shard
from penstock.api.registry import Request, handler
from penstock.serving.services import Services
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@handler(HeartbeatRequest, HeartbeatResponse)
def heartbeat(
    services: Services, request: Request[HeartbeatRequest]
) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    return to_shard(services, request, request.body.group_id, request.body, HeartbeatResponse)
