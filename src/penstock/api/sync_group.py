"""SyncGroup (14), versions 0 to 5: hand out, or wait for, the assignment of a generation."""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.api.groups import to_shard
from penstock.api.registry import Request, handler
from penstock.serving.services import Services
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


@handler(SyncGroupRequest, SyncGroupResponse)
def sync_group(
    services: Services, request: Request[SyncGroupRequest]
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    return to_shard(services, request, request.body.group_id, request.body, SyncGroupResponse)
