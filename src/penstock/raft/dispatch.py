"""Which function answers which message, and what each role does when time passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.raft.changes import on_add, on_remove, on_update, poll_own_endpoints
from penstock.raft.core import Core, Sent
from penstock.raft.describe import on_describe
from penstock.raft.elections import on_vote, on_vote_failed, on_vote_response, poll_election
from penstock.raft.follower import (
    on_begin,
    on_end,
    on_fetch_failed,
    on_fetch_response,
    poll_follower,
    poll_unattached,
)
from penstock.raft.joining import poll_join
from penstock.raft.leader import on_end_failed, on_epoch_response, poll_leader, poll_resigned
from penstock.raft.snapshots import on_snapshot_response
from penstock.raft.states import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest
from penstock.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from penstock.wire.messages.describe_quorum import DescribeQuorumRequest
from penstock.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.messages.fetch_snapshot import FetchSnapshotRequest
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.wire.messages.update_raft_voter import UpdateRaftVoterRequest
from penstock.wire.messages.vote import VoteRequest

REQUESTS: Final[dict[type, Callable[[Core, object, Any, int], None]]] = {
    VoteRequest: on_vote,
    BeginQuorumEpochRequest: on_begin,
    EndQuorumEpochRequest: on_end,
    AddRaftVoterRequest: on_add,
    RemoveRaftVoterRequest: on_remove,
    UpdateRaftVoterRequest: on_update,
    DescribeQuorumRequest: on_describe,
}
RESPONSES: Final[dict[type, Callable[[Core, Sent, Any, int], None]]] = {
    VoteRequest: on_vote_response,
    FetchRequest: on_fetch_response,
    FetchSnapshotRequest: on_snapshot_response,
    BeginQuorumEpochRequest: on_epoch_response,
    EndQuorumEpochRequest: on_epoch_response,
}
FAILURES: Final[dict[type, Callable[[Core, Sent, int], None]]] = {
    VoteRequest: on_vote_failed,
    FetchRequest: on_fetch_failed,
    FetchSnapshotRequest: on_fetch_failed,
    EndQuorumEpochRequest: on_end_failed,
}
POLLS: Final[dict[type, tuple[Callable[[Core, Any, int], None], ...]]] = {
    Unattached: (poll_unattached,),
    Prospective: (poll_election,),
    Candidate: (poll_election,),
    Follower: (poll_follower, poll_join),
    Leader: (poll_leader, poll_own_endpoints),
    Resigned: (poll_resigned,),
}
