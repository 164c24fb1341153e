"""LeaveGroup (13), versions 0 to 5: members leave a classic group."""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.api.groups import to_shard
from penstock.api.registry import Request, handler
from penstock.serving.services import Services
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse


@handler(LeaveGroupRequest, LeaveGroupResponse)
def leave_group(
    services: Services, request: Request[LeaveGroupRequest]
) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
    return to_shard(services, request, request.body.group_id, request.body, LeaveGroupResponse)
