"""RemoveRaftVoter (81), version 0: a voter of the metadata quorum becomes an observer (KIP-853)."""

from __future__ import annotations

from penstock.api.controller import ask
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


@handler(RemoveRaftVoterRequest, RemoveRaftVoterResponse, on_controller=True)
async def remove_raft_voter(
    services: Services, request: Request[RemoveRaftVoterRequest]
) -> RemoveRaftVoterResponse:
    try:
        return await ask(services, request, RemoveRaftVoterResponse)
    except ApiError as e:
        return RemoveRaftVoterResponse(error_code=e.code, error_message=e.message)
