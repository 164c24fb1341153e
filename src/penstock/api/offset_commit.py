"""OffsetCommit (8), versions 2 to 10: store how far a group has read."""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.api.groups import to_shard
from penstock.api.registry import Request, handler
from penstock.serving.services import Services
from penstock.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse


@handler(OffsetCommitRequest, OffsetCommitResponse)
def offset_commit(
    services: Services, request: Request[OffsetCommitRequest]
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    return to_shard(services, request, request.body.group_id, request.body, OffsetCommitResponse)
