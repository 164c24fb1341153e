"""The follower and the unattached: finding a leader, fetching from it, taking what it sends.

One fetch is in progress at a time, from the flushed end of the log: the next one goes out when what
came has been flushed. Records are taken only if they follow the log's end, with rising offsets and
epochs, and only in the role that asked for them.
"""

from __future__ import annotations

from penstock.base.errors import CorruptRecord, ErrorCode
from penstock.raft import messages
from penstock.raft.core import Core, Sent
from penstock.raft.effects import Append, Destination
from penstock.raft.elections import become_prospective
from penstock.raft.states import Follower, Prospective, SnapshotFetch, Unattached
from penstock.raft.transitions import become_follower, become_unattached, learn, lose_leader
from penstock.raft.types import NEVER_MS, NO_NODE, Endpoint, OffsetAndEpoch, ReplicaKey
from penstock.wire.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from penstock.wire.messages.end_quorum_epoch import (
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    RequestPartitionData,
)
from penstock.wire.messages.fetch import (
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from penstock.wire.messages.fetch_snapshot import FetchSnapshotRequest
from penstock.wire.records import LOG_OVERHEAD, check_batch

SUCCESSOR_PAUSE_MS = 100
"""How much later each next one in the line of successors stands for election."""
DISCOVERY_BACKOFF_MS_MAX = 1_000


# -- what time demands -------------------------------------------------------------------------


def poll_unattached(core: Core, role: Unattached, now_ms: int) -> None:
    if core.may_stand:
        if now_ms >= role.election_ms or core.voters.keys == [core.me]:
            become_prospective(core, now_ms)
            return
        if role.election_ms == NEVER_MS:
            role.election_ms = now_ms + core.election_timeout_ms()
    else:
        role.election_ms = NEVER_MS
    if now_ms >= role.fetch_ms:
        _look_for_leader(core, role, now_ms)


def _look_for_leader(core: Core, role: Unattached, now_ms: int) -> None:
    """A fetch to any replica: one that is not the leader names the leader."""
    listener = core.wanted_listener
    places = [Destination(NO_NODE, *at, listener) for at in core.config.bootstrap_servers]
    for key in core.voters.keys:
        to = core.address_of(key.id)
        if key.id != core.me.id and to is not None:
            places.append(to)
    role.fetch_ms = NEVER_MS
    if places:
        to = places[core.random_ms(len(places))]
        request = messages.fetch_request(core, max_wait_ms=0)
        core.send(to, ReplicaKey(to.node_id), request, messages.FETCH_VERSION, now_ms)


def poll_follower(core: Core, role: Follower, now_ms: int) -> None:
    if now_ms >= min(role.timeout_ms, role.election_ms):
        if core.may_stand:
            become_prospective(core, now_ms)
        else:
            become_unattached(core, core.epoch, now_ms)
        return
    if now_ms < role.fetch_ms:
        return
    role.fetch_ms = NEVER_MS
    if core.log.flushed_offset < core.log.end_offset:
        return  # `on_flushed` continues.
    fetching = role.snapshot
    key = ReplicaKey(role.leader_id)
    to = core.address_of(role.leader_id)
    assert to is not None
    if fetching is None:
        request = messages.fetch_request(core, max_wait_ms=core.config.fetch_max_wait_ms)
        core.send(to, key, request, messages.FETCH_VERSION, now_ms)
    else:
        chunk = messages.fetch_snapshot_request(core, fetching)
        core.send(to, key, chunk, messages.FETCH_SNAPSHOT_VERSION, now_ms)


def on_flushed(core: Core, role: Follower, now_ms: int) -> None:
    core.commit(role.leader_high_watermark)
    _look_at_voters(role, now_ms)
    if core.log.flushed_offset == core.log.end_offset and not _fetching(core, role):
        role.fetch_ms = min(role.fetch_ms, now_ms)


def _look_at_voters(role: Follower, now_ms: int) -> None:
    """The voter set may have changed: check whether to join, unless an attempt is in progress."""
    if role.join_ms == NEVER_MS:
        role.join_ms = now_ms


def _fetching(core: Core, role: Follower) -> bool:
    """Whether an answer or a snapshot is awaited, which sets the time of the next fetch."""
    if role.snapshot is not None and role.snapshot.loading:
        return True
    kinds = (FetchRequest, FetchSnapshotRequest)
    return any(s.role is role and isinstance(s.request, kinds) for s in core.in_flight.values())


def on_connection_refused(core: Core, node_id: int, now_ms: int) -> None:
    role = core.role
    if isinstance(role, Follower) and role.leader_id == node_id:
        lose_leader(core, now_ms)


# -- what the leader sends ---------------------------------------------------------------------


def on_fetch_response(core: Core, sent: Sent, response: FetchResponse, now_ms: int) -> None:
    part = _part(response)
    if part is None or response.error_code:
        on_fetch_failed(core, sent, now_ms)
        return
    leader = part.current_leader
    before = core.role
    address = messages.told_address(response, leader.leader_id, sent.to)
    learn(core, leader.leader_epoch, leader.leader_id, address, now_ms)
    role = core.role
    if role is not before or sent.role is not role:
        return
    if part.error_code or not isinstance(role, Follower) or leader.leader_epoch != core.epoch:
        on_fetch_failed(core, sent, now_ms)
        if leader == LeaderIdAndEpoch(leader_id=NO_NODE, leader_epoch=core.epoch):
            # The leader of this epoch has given it up, so this epoch has no leader any more.
            lose_leader(core, now_ms)
        return
    core.election_failures = core.sync_ms = 0
    role.timeout_ms = now_ms + core.fetch_timeout_ms()
    role.heard, role.leader_lost, role.election_ms = True, False, NEVER_MS
    role.fetch_ms = now_ms
    if part.diverging_epoch.epoch >= 0 and part.diverging_epoch.end_offset >= 0:
        _truncate(core, part.diverging_epoch.epoch, part.diverging_epoch.end_offset)
    elif part.snapshot_id.end_offset >= 0:
        found = OffsetAndEpoch(part.snapshot_id.end_offset, part.snapshot_id.epoch)
        role.snapshot = SnapshotFetch(found)
    else:
        _take(core, role, part, now_ms)


def _take(core: Core, role: Follower, part: PartitionData, now_ms: int) -> None:
    """Append the whole batches of the answer; a last one may have been cut off."""
    data = memoryview(part.records or b"")
    first, position = core.log.end_offset, 0
    while len(data) - position >= LOG_OVERHEAD:
        size = LOG_OVERHEAD + int.from_bytes(data[position + 8 : position + 12], "big")
        if size > len(data) - position:
            break
        batch = data[position : position + size]
        try:
            header = check_batch(batch)
        except CorruptRecord:
            break
        if header.base_offset != core.log.end_offset:
            break
        if header.partition_leader_epoch > core.epoch:
            break
        core.take(batch, header)
        position += size
    if position:
        core.effects.append(Append(data[:position], first, core.log.end_offset - 1))
    elif len(data):
        role.fetch_ms = now_ms + core.config.retry_backoff_ms
    role.leader_high_watermark = max(role.leader_high_watermark, part.high_watermark)
    core.commit(role.leader_high_watermark)
    _look_at_voters(role, now_ms)
    role.caught_up = core.log.end_offset >= part.high_watermark


def _truncate(core: Core, epoch: int, end_offset: int) -> None:
    """Cut to the end of the last epoch that both logs may have."""
    own = core.log.end_of(epoch)
    core.truncate(min(own.offset, end_offset, core.log.end_offset))


def on_fetch_failed(core: Core, sent: Sent, now_ms: int) -> None:
    role = core.role
    if sent.role is not role:
        return
    if isinstance(role, Follower):
        role.fetch_ms = now_ms + core.config.retry_backoff_ms
    elif isinstance(role, Unattached):
        role.fetch_ms = now_ms + role.backoff_ms
        role.backoff_ms = min(role.backoff_ms * 2, DISCOVERY_BACKOFF_MS_MAX)


def _part(response: FetchResponse) -> PartitionData | None:
    for topic in response.responses:
        for part in topic.partitions:
            return part
    return None


# -- the leader's word on its epoch ------------------------------------------------------------


def on_begin(core: Core, token: object, request: BeginQuorumEpochRequest, now_ms: int) -> None:
    part = messages.only_partition(request)
    if not messages.is_ours(core, request.cluster_id):
        error = ErrorCode.INCONSISTENT_CLUSTER_ID
        core.reply(token, messages.refused(BeginQuorumEpochResponse, error))
        return
    if part is None or part.leader_id < 0:
        error = ErrorCode.INVALID_REQUEST
        core.reply(token, messages.refused(BeginQuorumEpochResponse, error))
        return
    if part.leader_epoch < core.epoch:
        core.reply(token, messages.begin_response(core, ErrorCode.FENCED_LEADER_EPOCH))
        return
    endpoints = [Endpoint(e.name, e.host, e.port) for e in request.leader_endpoints]
    address = core.destination(part.leader_id, endpoints)
    learn(core, part.leader_epoch, part.leader_id, address, now_ms)
    role = core.role
    if isinstance(role, Prospective) and core.election.leader_id == part.leader_id:
        to = address or core.address_of(part.leader_id)
        if to is not None:
            become_follower(core, core.epoch, part.leader_id, to, now_ms)
    elif isinstance(role, Follower):
        # It is alive, even if a connection to it was refused.
        role.leader_lost, role.election_ms = False, NEVER_MS
    if address is not None and core.leader_id == part.leader_id != core.me.id:
        core.leader_is_at(address, said_itself=True)
    core.reply(token, messages.begin_response(core, ErrorCode.NONE))


def on_end(core: Core, token: object, request: EndQuorumEpochRequest, now_ms: int) -> None:
    part = messages.only_partition(request)
    if not messages.is_ours(core, request.cluster_id):
        error = ErrorCode.INCONSISTENT_CLUSTER_ID
        core.reply(token, messages.refused(EndQuorumEpochResponse, error))
        return
    if part is None or part.leader_id < 0:
        core.reply(token, messages.refused(EndQuorumEpochResponse, ErrorCode.INVALID_REQUEST))
        return
    if part.leader_epoch < core.epoch:
        core.reply(token, messages.end_response(core, ErrorCode.FENCED_LEADER_EPOCH))
        return
    learn(core, part.leader_epoch, part.leader_id, None, now_ms)
    role = core.role
    if isinstance(role, Follower) and role.leader_id == part.leader_id:
        lose_leader(core, now_ms)
        if core.may_stand:
            role.election_ms = now_ms + _place_in_line(core, part) * SUCCESSOR_PAUSE_MS
    core.reply(token, messages.end_response(core, ErrorCode.NONE))


def _place_in_line(core: Core, part: RequestPartitionData) -> int:
    line = [ReplicaKey(c.candidate_id, c.candidate_directory_id) for c in part.preferred_candidates]
    if core.me in line:
        return line.index(core.me)
    if core.me.id in part.preferred_successors:
        return part.preferred_successors.index(core.me.id)
    return max(len(line), len(part.preferred_successors))
