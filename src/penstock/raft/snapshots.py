"""Fetching a snapshot, piece by piece, in place of a log that begins too late for us.

The pieces go to a partial file; when the last has come, the driver loads it and reports its voters;
only then the snapshot replaces the log. A change of leader starts again: another leader's snapshot
of the same name may have other bytes.
"""

from __future__ import annotations

from penstock.base.errors import invariant
from penstock.raft import messages
from penstock.raft.core import Core, Sent
from penstock.raft.effects import Committed, InstallSnapshot, LoadSnapshot, WriteSnapshot
from penstock.raft.follower import on_fetch_failed
from penstock.raft.states import Follower
from penstock.raft.transitions import learn
from penstock.raft.types import NEVER_MS, OffsetAndEpoch
from penstock.raft.voters import VoterSet
from penstock.wire.messages.fetch_snapshot import FetchSnapshotResponse

LOAD_MS_MAX = 60_000
"""How long a fetched snapshot may take to be read. There is no fetching meanwhile, so the leader is
not heard from; a follower that gave it up after the fetch timeout would start again for ever.
"""


def on_snapshot_response(
    core: Core, sent: Sent, response: FetchSnapshotResponse, now_ms: int
) -> None:
    part = None
    if not response.error_code:
        part = messages.only_partition(response, "index")
    if part is None:
        _begin_anew(core, sent, now_ms)
        return
    before = core.role
    leader = part.current_leader
    address = messages.told_address(response, leader.leader_id, sent.to)
    learn(core, leader.leader_epoch, leader.leader_id, address, now_ms)
    role = core.role
    if role is not before or sent.role is not role or not isinstance(role, Follower):
        return
    state = role.snapshot
    snapshot_id = OffsetAndEpoch(part.snapshot_id.end_offset, part.snapshot_id.epoch)
    if (
        part.error_code
        or state is None
        or state.id != snapshot_id
        or state.position != part.position
    ):
        _begin_anew(core, sent, now_ms)
        return
    role.timeout_ms = now_ms + core.fetch_timeout_ms()
    role.heard, role.leader_lost, role.election_ms = True, False, NEVER_MS
    chunk = part.unaligned_records or b""
    if not len(chunk) and state.position < part.size:
        _begin_anew(core, sent, now_ms)
        return
    core.effects.append(WriteSnapshot(snapshot_id, state.position, chunk))
    state.position += len(chunk)
    if state.position >= part.size:
        state.loading = True
        role.timeout_ms = now_ms + LOAD_MS_MAX
        core.effects.append(LoadSnapshot(snapshot_id))
    else:
        role.fetch_ms = now_ms


def _begin_anew(core: Core, sent: Sent, now_ms: int) -> None:
    """Back to Fetch, which says which snapshot is wanted now."""
    role = core.role
    if sent.role is role and isinstance(role, Follower):
        role.snapshot = None
    on_fetch_failed(core, sent, now_ms)


def on_loaded(
    core: Core,
    snapshot_id: OffsetAndEpoch,
    version: int | None,
    voters: VoterSet | None,
    now_ms: int,
) -> None:
    """Take the snapshot, unless another role or leader has come since it was asked for."""
    role = core.role
    wanted = role.snapshot if isinstance(role, Follower) else None
    if not isinstance(role, Follower) or wanted is None or not wanted.loading:
        return
    if wanted.id != snapshot_id:
        return
    invariant(
        snapshot_id.offset >= core.high_watermark,
        f"snapshot {snapshot_id} ends below the high watermark {core.high_watermark}",
    )
    core.effects.append(InstallSnapshot(snapshot_id))
    core.log.reset_to(snapshot_id)
    core.voter_sets.reset(snapshot_id.offset - 1, voters)
    core.versions.reset(snapshot_id.offset - 1, version)
    if snapshot_id.offset > core.high_watermark:
        core.high_watermark = snapshot_id.offset
        core.effects.append(Committed(snapshot_id.offset))
    role.snapshot = None
    role.fetch_ms = now_ms
    role.timeout_ms = now_ms + core.fetch_timeout_ms()


def on_load_failed(core: Core, now_ms: int) -> None:
    """The file is not a snapshot: fetch again, after a pause."""
    role = core.role
    wanted = role.snapshot if isinstance(role, Follower) else None
    if isinstance(role, Follower) and wanted is not None and wanted.loading:
        role.snapshot = None
        role.fetch_ms = now_ms + core.config.retry_backoff_ms
        role.timeout_ms = now_ms + core.fetch_timeout_ms()


def on_written(core: Core, snapshot_id: OffsetAndEpoch) -> None:
    """The driver has written a snapshot of the committed state below `snapshot_id.offset`."""
    invariant(
        snapshot_id.offset <= core.high_watermark
        and core.log.epoch_at(snapshot_id.offset - 1) == snapshot_id.epoch,
        f"snapshot {snapshot_id} is not of the committed log below {core.high_watermark}",
    )
    if core.log.snapshot is None or snapshot_id.offset > core.log.snapshot.offset:
        core.log.snapshot = snapshot_id


def on_trimmed(core: Core, start_offset: int) -> None:
    core.log.trim(start_offset)
    core.voter_sets.trim(start_offset)
    core.versions.trim(start_offset)
