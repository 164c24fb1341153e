"""EndQuorumEpoch (54), versions 0 and 1: the leader of the metadata quorum gives its epoch up."""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.serving.broker import Broker
from penstock.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse


@handler(EndQuorumEpochRequest, EndQuorumEpochResponse)
async def end_quorum_epoch(
    broker: Broker, request: Request[EndQuorumEpochRequest]
) -> EndQuorumEpochResponse:
    response: EndQuorumEpochResponse = await broker.quorum.handle(request.body)
    return response
