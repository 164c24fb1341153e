"""Changes of the voter set (KIP-853): one at a time, by the leader, each a Voters record.

The preconditions of each request are a list, checked in order; the first that does not hold is the
answer. The record is in force as soon as it is appended, so it is committed by a majority of the
new set. A leader that removed itself continues until that is committed, without counting itself,
and then resigns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock.base.errors import ErrorCode
from penstock.base.ids import ZERO_UUID
from penstock.raft import messages
from penstock.raft.control_records import voters_record
from penstock.raft.core import Core
from penstock.raft.leader import advance, resign
from penstock.raft.states import Leader, PendingChange
from penstock.raft.types import Endpoint, ReplicaKey
from penstock.raft.voters import KRAFT_VERSION, VoterNode, VoterSet
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from penstock.wire.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from penstock.wire.messages.update_raft_voter import (
    CurrentLeader,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from penstock.wire.schema import Message

VOTERS_MAX = 99
"""More voters than a cluster needs; each commit waits for a majority of them."""
OUTCOMES: Final = {
    ErrorCode.REQUEST_TIMED_OUT: "The new voters were not committed in time; they may still be.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "The leader changed before the new voters were committed.",
    ErrorCode.KAFKA_STORAGE_ERROR: "The leader could not write the new voters.",
}
"""The error of a request that was accepted, and whose change was not committed."""


class Refused(Exception):
    """Why a change is not made."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


def on_add(core: Core, token: object, request: AddRaftVoterRequest, now_ms: int) -> None:
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    try:
        role = _may_change(core, request.cluster_id)
        endpoints = _checked(core, key, request.listeners)
        known = core.voters.node(key.id)
        if known is not None:
            raise Refused(ErrorCode.DUPLICATE_VOTER, f"{known.key} is a voter already.")
        if len(core.voters) >= VOTERS_MAX:
            raise Refused(ErrorCode.INVALID_REQUEST, f"There are {VOTERS_MAX} voters already.")
        _caught_up(core, role, key, now_ms)
    except Refused as e:
        core.reply(token, AddRaftVoterResponse(error_code=e.error, error_message=e.message))
        return
    answer = partial(_answer, AddRaftVoterResponse)
    offset = _change(core, role, core.voters.with_node(VoterNode(key, endpoints)), now_ms)
    if request.ack_when_committed:
        _wait(core, role, token, offset, answer, now_ms + max(request.timeout_ms, 0))
    else:
        core.reply(token, answer(ErrorCode.NONE))


def on_remove(core: Core, token: object, request: RemoveRaftVoterRequest, now_ms: int) -> None:
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    try:
        role = _may_change(core, request.cluster_id)
        if key not in core.voters:
            raise Refused(ErrorCode.VOTER_NOT_FOUND, f"{key} is not a voter.")
        if len(core.voters) == 1:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{key} is the only voter.")
    except Refused as e:
        core.reply(token, RemoveRaftVoterResponse(error_code=e.error, error_message=e.message))
        return
    offset = _change(core, role, core.voters.without(key.id), now_ms)
    answer = partial(_answer, RemoveRaftVoterResponse)
    _wait(core, role, token, offset, answer, now_ms + core.request_timeout_ms())


def on_update(core: Core, token: object, request: UpdateRaftVoterRequest, now_ms: int) -> None:
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    feature = request.k_raft_version_feature
    low, high = feature.min_supported_version, feature.max_supported_version
    answer = partial(_update_response, core)
    try:
        role = _may_change(core, request.cluster_id, request.current_leader_epoch)
        endpoints = _checked(core, key, request.listeners)
        if key not in core.voters:
            raise Refused(ErrorCode.VOTER_NOT_FOUND, f"{key} is not a voter.")
        if not low <= core.kraft_version <= high:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"{key} reads kraft.version {low} to {high}; it is {core.kraft_version}.",
            )
    except Refused as e:
        core.reply(token, answer(e.error))
        return
    voters = core.voters.with_node(VoterNode(key, endpoints, (low, high)))
    if voters == core.voters:
        core.reply(token, answer(ErrorCode.NONE))
        return
    offset = _change(core, role, voters, now_ms)
    _wait(core, role, token, offset, answer, now_ms + core.request_timeout_ms())


def _answer(kind: Callable[..., Message], error: ErrorCode) -> Message:
    return kind(error_code=error, error_message=OUTCOMES.get(error))


def _update_response(core: Core, error: ErrorCode) -> UpdateRaftVoterResponse:
    leader_id, address = messages.told_leader(core)
    leader = CurrentLeader(leader_id=leader_id, leader_epoch=core.epoch)
    if address is not None:
        leader.host, leader.port = address.host, address.port
    return UpdateRaftVoterResponse(error_code=error, current_leader=leader)


# -- preconditions -----------------------------------------------------------------------------


def _may_change(core: Core, cluster_id: str | None, epoch: int | None = None) -> Leader:
    role = core.role
    if not messages.is_ours(core, cluster_id):
        raise Refused(ErrorCode.INCONSISTENT_CLUSTER_ID, f"This is not cluster {cluster_id}.")
    if epoch is not None and epoch > core.epoch:
        raise Refused(ErrorCode.UNKNOWN_LEADER_EPOCH, f"The epoch is {core.epoch}.")
    if not isinstance(role, Leader):
        raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "Ask the leader of the quorum.")
    if epoch is not None and epoch < core.epoch:
        raise Refused(ErrorCode.FENCED_LEADER_EPOCH, f"The epoch is {core.epoch}.")
    if core.high_watermark <= role.start_offset:
        raise Refused(
            ErrorCode.REQUEST_TIMED_OUT, "The leader has not committed its epoch yet; try again."
        )
    if core.kraft_version < KRAFT_VERSION:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"kraft.version is {core.kraft_version}.")
    if role.pending is not None or core.voter_sets.last_offset >= core.high_watermark:
        raise Refused(
            ErrorCode.REQUEST_TIMED_OUT, "Another change of the voters is under way; try again."
        )
    return role


def _checked(core: Core, key: ReplicaKey, listeners: list[Any]) -> tuple[Endpoint, ...]:
    if key.id < 0 or key.directory_id == ZERO_UUID:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{key} is not an id with a directory id.")
    endpoints = tuple(Endpoint(e.name, e.host, e.port) for e in listeners)
    if core.destination(key.id, endpoints) is None:
        names = " or ".join(core.config.listeners) or "at all"
        raise Refused(ErrorCode.INVALID_REQUEST, f"{key} has no listener {names} to be reached at.")
    return endpoints


def _caught_up(core: Core, role: Leader, key: ReplicaKey, now_ms: int) -> None:
    """A voter that is far behind would delay every commit."""
    progress = role.replicas.get(key)
    since_ms = now_ms - core.config.fetch_timeout_ms
    if progress is None or progress.last_caught_up_ms < max(since_ms, 0):
        raise Refused(
            ErrorCode.REQUEST_TIMED_OUT,
            f"{key} has not caught up with the log's end {core.log.end_offset} yet; try again.",
        )


# -- making it so ------------------------------------------------------------------------------


def _change(core: Core, role: Leader, voters: VoterSet, now_ms: int) -> int:
    """Append `voters`, which are in force from now on; the offset of their record."""
    append = core.append([voters_record(voters, now_ms)], control=True)
    core.effects.append(append)
    if advance(core, role):
        on_committed(core, role, now_ms)
    return append.last


def _wait(
    core: Core,
    role: Leader,
    token: object,
    offset: int,
    answer: Callable[[ErrorCode], Message],
    deadline_ms: int,
) -> None:
    """Answer when the record at `offset` is committed, or when it is too late for that."""
    if offset < core.high_watermark:
        core.reply(token, answer(ErrorCode.NONE))
    else:
        role.pending = PendingChange(token, answer, offset, deadline_ms)


def on_committed(core: Core, role: Leader, now_ms: int) -> None:
    """The high watermark has moved: a change may be complete."""
    pending = role.pending
    if pending is not None and pending.offset < core.high_watermark:
        role.pending = None
        core.reply(pending.token, pending.answer(ErrorCode.NONE))
    if not core.is_voter and core.voter_sets.last_offset < core.high_watermark:
        resign(core, now_ms)


def poll_own_endpoints(core: Core, role: Leader, now_ms: int) -> None:
    """A leader whose listeners have moved since it became a voter writes that itself."""
    entry = core.voters.node(core.me.id)
    if entry is None or entry.key != core.me or entry.endpoints == core.endpoints:
        return
    try:
        _may_change(core, None)
    except Refused:
        return
    _change(core, role, core.voters.with_node(VoterNode(core.me, core.endpoints)), now_ms)
