"""BeginQuorumEpoch (53), versions 0 and 1: a new leader notifies the voters of the quorum."""

from __future__ import annotations

from penstock.api.quorum import handled
from penstock.api.registry import Request, handler
from penstock.serving.services import Services
from penstock.wire.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)


@handler(BeginQuorumEpochRequest, BeginQuorumEpochResponse)
async def begin_quorum_epoch(
    services: Services, request: Request[BeginQuorumEpochRequest]
) -> BeginQuorumEpochResponse:
    return await handled(services, request, lambda code: BeginQuorumEpochResponse(error_code=code))
