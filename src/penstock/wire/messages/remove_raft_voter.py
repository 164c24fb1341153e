"""RemoveRaftVoter: take a voter out of the metadata quorum (KIP-853)."""

from __future__ import annotations

from penstock.base.ids import Uuid
from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, int16, int32, string, uuid


class RemoveRaftVoterRequest(
    Message, api_key=ApiKey.REMOVE_RAFT_VOTER, versions="0", flexible="0+"
):
    cluster_id: str | None = string("0+", nullable="0+")
    voter_id: int = int32("0+")
    voter_directory_id: Uuid = uuid("0+")


class RemoveRaftVoterResponse(
    Message, api_key=ApiKey.REMOVE_RAFT_VOTER, versions="0", flexible="0+"
):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", ignorable=True)
