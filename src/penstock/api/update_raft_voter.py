"""UpdateRaftVoter (82), version 0: a voter updates its endpoints (KIP-853)."""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.serving.services import Services
from penstock.wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse


@handler(UpdateRaftVoterRequest, UpdateRaftVoterResponse)
async def update_raft_voter(
    services: Services, request: Request[UpdateRaftVoterRequest]
) -> UpdateRaftVoterResponse:
    response: UpdateRaftVoterResponse = await services.quorum.handle(
        request.principal, request.body
    )
    return response
