"""ReadShareGroupState (84), version 0: what is persisted of share-partitions, for the
leader that takes them over."""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.api.share_states import serve
from penstock.serving.services import Services
from penstock.wire.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
)


@handler(ReadShareGroupStateRequest, ReadShareGroupStateResponse)
async def read_share_group_state(
    services: Services, request: Request[ReadShareGroupStateRequest]
) -> ReadShareGroupStateResponse:
    return await serve(services, request, ReadShareGroupStateResponse)
