"""DeleteShareGroupState (86), version 0: states of share-partitions are forgotten,
as a group's coordinator asks."""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.api.share_states import serve
from penstock.serving.services import Services
from penstock.wire.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)


@handler(DeleteShareGroupStateRequest, DeleteShareGroupStateResponse)
async def delete_share_group_state(
    services: Services, request: Request[DeleteShareGroupStateRequest]
) -> DeleteShareGroupStateResponse:
    return await serve(services, request, DeleteShareGroupStateResponse)
