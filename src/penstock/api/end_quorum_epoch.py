"""EndQuorumEpoch (54), versions 0 and 1: the leader of the metadata quorum gives its epoch up."""

from __future__ import annotations

from penstock.api.quorum import handled
from penstock.api.registry import Request, handler
from penstock.serving.services import Services
from penstock.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse


@handler(EndQuorumEpochRequest, EndQuorumEpochResponse)
async def end_quorum_epoch(
    services: Services, request: Request[EndQuorumEpochRequest]
) -> EndQuorumEpochResponse:
    return await handled(services, request, lambda code: EndQuorumEpochResponse(error_code=code))
