"""AddRaftVoter (80), versions 0 and 1: a caught-up observer becomes a voter (KIP-853)."""

from __future__ import annotations

from penstock.api.controller import ask
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse


@handler(AddRaftVoterRequest, AddRaftVoterResponse, on_controller=True)
async def add_raft_voter(
    services: Services, request: Request[AddRaftVoterRequest]
) -> AddRaftVoterResponse:
    try:
        return await ask(services, request, AddRaftVoterResponse)
    except ApiError as e:
        return AddRaftVoterResponse(error_code=e.code, error_message=e.message)
