"""WriteShareGroupState (85), versions 0 and 1: what has changed in
share-partitions, as the leader of their partition says."""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.api.share_states import serve
from penstock.serving.services import Services
from penstock.wire.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)


@handler(WriteShareGroupStateRequest, WriteShareGroupStateResponse)
async def write_share_group_state(
    services: Services, request: Request[WriteShareGroupStateRequest]
) -> WriteShareGroupStateResponse:
    return await serve(services, request, WriteShareGroupStateResponse)
