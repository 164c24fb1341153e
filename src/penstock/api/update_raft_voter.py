"""UpdateRaftVoter (82), version 0: a voter updates its endpoints (KIP-853)."""

from __future__ import annotations

from penstock.api.quorum import handled
from penstock.api.registry import Request, handler
from penstock.serving.services import Services
from penstock.wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse


@handler(UpdateRaftVoterRequest, UpdateRaftVoterResponse)
async def update_raft_voter(
    services: Services, request: Request[UpdateRaftVoterRequest]
) -> UpdateRaftVoterResponse:
    return await handled(services, request, lambda code: UpdateRaftVoterResponse(error_code=code))
