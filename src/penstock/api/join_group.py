"""JoinGroup (11), versions 0 to 9: enter a classic group."""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.api.groups import to_shard
from penstock.api.registry import Request, handler
from penstock.serving.services import Services
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse


@handler(JoinGroupRequest, JoinGroupResponse)
def join_group(
    services: Services, request: Request[JoinGroupRequest]
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    return to_shard(services, request, request.body.group_id, request.body, JoinGroupResponse)
