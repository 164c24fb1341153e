"""OffsetDelete (47), version 0: forget offsets of topics that a group's members do not consume."""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.api.groups import to_shard
from penstock.api.registry import Request, handler
from penstock.serving.services import Services
from penstock.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse


@handler(OffsetDeleteRequest, OffsetDeleteResponse)
def offset_delete(
    services: Services, request: Request[OffsetDeleteRequest]
) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    return to_shard(services, request, request.body.group_id, request.body, OffsetDeleteResponse)
