"""Elections: standing for one (pre-vote first), voting in one.

A replica grants a pre-vote when it has no leader that it believes alive and the other's log is as
complete as its own. It grants a vote once per epoch. Votes are counted over the voter set in
force here, by id and directory id.
"""

from __future__ import annotations

from penstock.base.errors import ErrorCode
from penstock.raft import messages
from penstock.raft.core import Core, Sent
from penstock.raft.leader import become_leader
from penstock.raft.state import QuorumState
from penstock.raft.states import Candidate, Election, Follower, Prospective, Unattached
from penstock.raft.transitions import become_unattached, follow_again, is_settled, learn, pause_ms
from penstock.raft.types import NO_NODE, OffsetAndEpoch, ReplicaKey
from penstock.wire.messages.vote import (
    RequestPartitionData,
    VoteRequest,
    VoteResponse,
)

ELECTION_BACKOFF_MS_MIN = 50
"""The first pause after a lost election is below this, the next below twice of it, and so on up to
`election_backoff_max_ms`."""


# -- standing for election ---------------------------------------------------------------------


def become_prospective(core: Core, now_ms: int) -> None:
    lost = isinstance(core.role, Follower) and core.role.leader_lost
    core.become(
        Prospective(
            now_ms + core.election_timeout_ms(),
            granted={core.me: None},
            ask_ms=_others(core, now_ms),
            leader_lost=lost,
        )
    )


def become_candidate(core: Core, now_ms: int) -> None:
    core.elect(
        QuorumState(core.epoch + 1, voted_id=core.me.id, voted_directory_id=core.me.directory_id)
    )
    core.leader_is_at(None)
    core.become(
        Candidate(
            now_ms + core.election_timeout_ms(),
            granted={core.me: None},
            ask_ms=_others(core, now_ms),
        )
    )


def _others(core: Core, now_ms: int) -> dict[ReplicaKey, int]:
    return {key: now_ms for key in core.voters.keys if key != core.me}


def poll_election(core: Core, role: Election, now_ms: int) -> None:
    """Ask the voters that have not answered; win, lose or give up."""
    if not core.may_stand:
        become_unattached(core, core.epoch, now_ms)
        return
    keys = core.voters.keys
    if sum(key in role.granted for key in keys) >= core.voters.majority:
        if isinstance(role, Prospective):
            become_candidate(core, now_ms)
        else:
            become_leader(core, list(role.granted), now_ms)
        return
    against = sum(key in role.rejected or key in role.failed for key in keys)
    if against > len(keys) - core.voters.majority:
        _lose(core, role, now_ms)
        return
    if now_ms >= role.deadline_ms:
        _give_up(core, role, now_ms)
        return
    for key in keys:
        if role.ask_ms.get(key, now_ms + 1) <= now_ms:
            _ask(core, role, key, now_ms)


def _ask(core: Core, role: Election, key: ReplicaKey, now_ms: int) -> None:
    to = core.address_of(key.id)
    role.failed.pop(key, None)
    role.ask_ms[key] = now_ms + core.request_timeout_ms()
    if to is not None:
        request = messages.vote_request(core, key, pre_vote=isinstance(role, Prospective))
        core.send(to, key, request, messages.VOTE_VERSION, now_ms)


def _lose(core: Core, role: Election, now_ms: int) -> None:
    """No majority is possible: the next step follows after a random pause."""
    core.election_failures += 1
    if isinstance(role, Prospective):
        _after_pre_vote(core, now_ms)
        return
    become_unattached(core, core.epoch, now_ms)
    _hasten(core, now_ms)


def _give_up(core: Core, role: Election, now_ms: int) -> None:
    core.election_failures += 1
    if isinstance(role, Prospective):
        _after_pre_vote(core, now_ms)
    else:
        become_prospective(core, now_ms)


def _after_pre_vote(core: Core, now_ms: int) -> None:
    follow_again(core, now_ms)
    _hasten(core, now_ms)


def _hasten(core: Core, now_ms: int) -> None:
    """The next election comes after a short pause, not after a whole timeout."""
    if isinstance(core.role, Unattached) and core.may_stand:
        core.role.election_ms = now_ms + pause_ms(core, ELECTION_BACKOFF_MS_MIN)


def on_vote_response(core: Core, sent: Sent, response: VoteResponse, now_ms: int) -> None:
    part = messages.only_partition(response)
    role = core.role
    if part is None or response.error_code:
        on_vote_failed(core, sent, now_ms)
        return
    address = messages.told_address(response, part.leader_id, sent.to)
    learn(core, part.leader_epoch, part.leader_id, address, now_ms)
    if core.role is not role or sent.role is not role or not isinstance(role, Election):
        return
    role.ask_ms.pop(sent.key, None)
    if part.error_code == ErrorCode.NONE and part.vote_granted:
        role.granted[sent.key] = None
    elif part.error_code in (ErrorCode.NONE, ErrorCode.INVALID_VOTER_KEY):
        role.rejected[sent.key] = None
    else:
        on_vote_failed(core, sent, now_ms)


def on_vote_failed(core: Core, sent: Sent, now_ms: int) -> None:
    role = core.role
    if sent.role is role and isinstance(role, Election):
        role.failed[sent.key] = None
        role.ask_ms[sent.key] = now_ms + core.config.retry_backoff_ms


# -- voting ------------------------------------------------------------------------------------


def on_vote(core: Core, token: object, request: VoteRequest, now_ms: int) -> None:
    part = messages.only_partition(request)
    if not messages.is_ours(core, request.cluster_id):
        core.reply(token, messages.refused(VoteResponse, ErrorCode.INCONSISTENT_CLUSTER_ID))
        return
    if part is None:
        core.reply(token, messages.refused(VoteResponse, ErrorCode.INVALID_REQUEST))
        return
    error, granted = _judge(core, request.voter_id, part, now_ms)
    core.reply(token, messages.vote_response(core, error, granted=granted))


def _judge(
    core: Core, voter_id: int, part: RequestPartitionData, now_ms: int
) -> tuple[ErrorCode, bool]:
    if part.replica_epoch < core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH, False
    if not is_me(core, voter_id, part.voter_directory_id):
        return ErrorCode.INVALID_VOTER_KEY, False
    if part.replica_epoch > core.epoch:
        become_unattached(core, part.replica_epoch, now_ms)
    key = ReplicaKey(part.replica_id, part.replica_directory_id)
    complete = core.log.up_to_date(OffsetAndEpoch(part.last_offset, part.last_offset_epoch))
    if part.pre_vote:
        return ErrorCode.NONE, complete and not is_settled(core)
    return ErrorCode.NONE, _vote_for(core, key, complete=complete, now_ms=now_ms)


def _vote_for(core: Core, key: ReplicaKey, *, complete: bool, now_ms: int) -> bool:
    election = core.election
    if election.voted is not None:
        return election.voted == key
    if election.leader_id != NO_NODE or not complete:
        return False
    core.elect(election._replace(voted_id=key.id, voted_directory_id=key.directory_id))
    become_unattached(core, core.epoch, now_ms)
    return True


def is_me(core: Core, voter_id: int, directory_id: bytes) -> bool:
    """Whether a request is meant for this replica; older versions do not say."""
    if voter_id == NO_NODE:
        return True
    return voter_id == core.me.id and directory_id in (bytes(16), core.me.directory_id)
