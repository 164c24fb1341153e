"""The leader: what it knows of the others, what is committed, and when it must resign.

The high watermark is the offset that a majority of the voter set in force has flushed, and moves
only once that covers a record of the present epoch. A leader that has not heard from a majority for
the fetch timeout resigns: another replica may lead by then.
"""

from __future__ import annotations

from penstock.base.errors import ErrorCode, invariant
from penstock.raft import control_records, messages
from penstock.raft.core import SYNCS_PER_ROUND, Core, Sent
from penstock.raft.effects import BecameLeader
from penstock.raft.states import Leader, Progress, Resigned, Unattached
from penstock.raft.transitions import become_unattached, learn
from penstock.raft.types import NEVER_MS, ReplicaKey
from penstock.raft.voters import KRAFT_VERSION
from penstock.wire.messages.begin_quorum_epoch import BeginQuorumEpochResponse
from penstock.wire.messages.end_quorum_epoch import EndQuorumEpochResponse

OBSERVER_SESSION_MS = 300_000
"""An observer that has not fetched for so long is no longer described."""


def become_leader(core: Core, granting: list[ReplicaKey], now_ms: int) -> None:
    """Begin the epoch with its LeaderChange record; the first leader of a cluster also writes the
    voter set.
    """
    core.elect(core.election._replace(leader_id=core.me.id))
    start = core.log.end_offset
    others = [key for key in core.voters.keys if key != core.me]
    core.become(Leader(start, {key: Progress(heard_ms=now_ms, begin_ms=now_ms) for key in others}))
    core.election_failures = 0
    core.leader_is_at(None)
    core.effects.append(BecameLeader(core.epoch, start))
    records = [control_records.leader_change(core.me.id, core.voters.keys, granting, now_ms)]
    if core.kraft_version < KRAFT_VERSION:
        records.append(control_records.kraft_version(KRAFT_VERSION, now_ms))
        records.append(control_records.voters_record(core.voters, now_ms))
    core.effects.append(core.append(records, control=True))


def resign(core: Core, now_ms: int) -> None:
    """Give the epoch up and notify the voters; the one with the most complete log is to follow."""
    role = core.role
    invariant(isinstance(role, Leader), "only a leader resigns")
    assert isinstance(role, Leader)
    others = [key for key in core.voters.keys if key != core.me]
    ends = {key: role.replicas[key].end_offset if key in role.replicas else -1 for key in others}
    successors = sorted(others, key=lambda key: (-ends[key], key.id))
    core.become(
        Resigned(now_ms + core.election_timeout_ms(), successors, dict.fromkeys(successors, now_ms))
    )


def poll_resigned(core: Core, role: Resigned, now_ms: int) -> None:
    if now_ms >= role.election_ms:
        become_unattached(core, core.epoch, now_ms)
        if isinstance(core.role, Unattached) and core.may_stand:
            core.role.election_ms = now_ms
        return
    for key, due in list(role.tell_ms.items()):
        to = core.address_of(key.id)
        if due <= now_ms:
            role.tell_ms[key] = NEVER_MS
            if to is not None:
                request = messages.end_request(core, role.successors)
                core.send(to, key, request, messages.END_QUORUM_EPOCH_VERSION, now_ms)


def poll_leader(core: Core, role: Leader, now_ms: int) -> None:
    """Announce the epoch to voters; resign without a majority; answer requests that waited too
    long.
    """
    heard_ms = heard_of_majority_ms(core, role, now_ms)
    timeout_ms = core.config.fetch_timeout_ms + SYNCS_PER_ROUND * core.sync_ms
    if now_ms >= heard_ms + timeout_ms:
        resign(core, now_ms)
        return
    pending = role.pending
    if pending is not None and now_ms >= pending.deadline_ms:
        role.pending = None
        core.reply(pending.token, pending.answer(ErrorCode.REQUEST_TIMED_OUT))
    _forget_observers(core, role, now_ms)
    role.next_check_ms = heard_ms + timeout_ms
    for key in core.voters.keys:
        if key != core.me:
            due = _tell(core, progress_of(role, key, now_ms), key, now_ms)
            role.next_check_ms = min(role.next_check_ms, due)


def _forget_observers(core: Core, role: Leader, now_ms: int) -> None:
    for key, progress in list(role.replicas.items()):
        if progress.heard_ms < now_ms - OBSERVER_SESSION_MS and key not in core.voters:
            del role.replicas[key]


def _tell(core: Core, progress: Progress, key: ReplicaKey, now_ms: int) -> int:
    """Send BeginQuorumEpoch to a voter that is not fetching; when to check again."""
    half_ms = core.config.fetch_timeout_ms // 2
    due = max(progress.begin_ms, progress.last_fetch_ms + half_ms)
    if due > now_ms:
        return due
    to = core.address_of(key.id)
    progress.begin_ms = now_ms + half_ms
    if to is not None:
        request = messages.begin_request(core, key)
        core.send(to, key, request, messages.BEGIN_QUORUM_EPOCH_VERSION, now_ms)
    return progress.begin_ms


def heard_of_majority_ms(core: Core, role: Leader, now_ms: int) -> int:
    """The latest time since which a majority, this node included if it votes, has been heard."""
    times = [
        now_ms if key == core.me else progress_of(role, key, now_ms).heard_ms
        for key in core.voters.keys
    ]
    times.sort(reverse=True)
    return times[core.voters.majority - 1]


def progress_of(role: Leader, key: ReplicaKey, now_ms: int) -> Progress:
    progress = role.replicas.get(key)
    if progress is None:
        progress = role.replicas[key] = Progress(heard_ms=now_ms, begin_ms=now_ms)
    return progress


def on_fetched(
    core: Core, role: Leader, key: ReplicaKey, offset: int, now_ms: int, came_ms: int
) -> None:
    """`key` has flushed its log, the same as ours, up to `offset`, as a fetch said that came in at
    `came_ms`.
    """
    progress = progress_of(role, key, now_ms)
    end = core.log.end_offset
    if offset >= end:
        progress.last_caught_up_ms = now_ms
    elif offset >= progress.leader_end_at_fetch >= 0:
        progress.last_caught_up_ms = max(progress.last_caught_up_ms, progress.last_fetch_ms)
    progress.end_offset = offset
    progress.last_fetch_ms = max(progress.last_fetch_ms, came_ms)
    progress.heard_ms = max(progress.heard_ms, came_ms)
    progress.leader_end_at_fetch = end


def advance(core: Core, role: Leader) -> bool:
    """Move the high watermark as far as a majority has come; whether it moved."""
    ends = []
    for key in core.voters.keys:
        if key == core.me:
            ends.append(core.log.flushed_offset)
        else:
            progress = role.replicas.get(key)
            ends.append(-1 if progress is None else progress.end_offset)
    ends.sort(reverse=True)
    reached = ends[core.voters.majority - 1]
    if reached <= role.start_offset or not core.commit(reached):
        return False
    core.sync_ms = 0
    return True


def on_epoch_response(
    core: Core,
    sent: Sent,
    response: BeginQuorumEpochResponse | EndQuorumEpochResponse,
    now_ms: int,
) -> None:
    """An answer to BeginQuorumEpoch shows only that the voter can be reached, not that it can
    fetch: it does not count as a sign of life.
    """
    part = None if response.error_code else messages.only_partition(response)
    if part is not None:
        address = messages.told_address(response, part.leader_id, sent.to)
        learn(core, part.leader_epoch, part.leader_id, address, now_ms)


def on_end_failed(core: Core, sent: Sent, now_ms: int) -> None:
    role = core.role
    if sent.role is role and isinstance(role, Resigned):
        role.tell_ms[sent.key] = now_ms + core.config.retry_backoff_ms
