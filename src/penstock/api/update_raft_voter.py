"""UpdateRaftVoter (82), version 0: a voter tells its endpoints anew (KIP-853)."""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.serving.broker import Broker
from penstock.wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse


@handler(UpdateRaftVoterRequest, UpdateRaftVoterResponse)
async def update_raft_voter(
    broker: Broker, request: Request[UpdateRaftVoterRequest]
) -> UpdateRaftVoterResponse:
    response: UpdateRaftVoterResponse = await broker.quorum.handle(request.body)
    return response
