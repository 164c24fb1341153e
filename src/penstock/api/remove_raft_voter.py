"""RemoveRaftVoter (81), version 0: a voter of the metadata quorum becomes an observer (KIP-853)."""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.serving.broker import Broker
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


@handler(RemoveRaftVoterRequest, RemoveRaftVoterResponse, on_controller=True)
async def remove_raft_voter(
    broker: Broker, request: Request[RemoveRaftVoterRequest]
) -> RemoveRaftVoterResponse:
    response: RemoveRaftVoterResponse = await broker.quorum.handle(request.body)
    return response
