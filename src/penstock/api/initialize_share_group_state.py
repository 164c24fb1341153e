"""InitializeShareGroupState (83), version 0: states of share-partitions are begun,
as a group's coordinator asks."""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.api.share_states import serve
from penstock.serving.services import Services
from penstock.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)


@handler(InitializeShareGroupStateRequest, InitializeShareGroupStateResponse)
async def initialize_share_group_state(
    services: Services, request: Request[InitializeShareGroupStateRequest]
) -> InitializeShareGroupStateResponse:
    return await serve(services, request, InitializeShareGroupStateResponse)
