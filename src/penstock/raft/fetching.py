"""The leader's side of Fetch and FetchSnapshot: what a reader may read, and from where.

The core decides; the driver reads the bytes, or waits for news if the request allows it and asks
the core again. A fetch by a replica shows how far its flushed log goes, and that it was alive when
the fetch came in: asking the core again is no sign of life, or a leader that hears nobody would
never resign.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from penstock.base.errors import ErrorCode
from penstock.raft import messages
from penstock.raft.changes import on_committed
from penstock.raft.core import Core
from penstock.raft.leader import advance, on_fetched, progress_of
from penstock.raft.states import Leader
from penstock.raft.transitions import become_unattached
from penstock.raft.types import OffsetAndEpoch, ReplicaKey
from penstock.wire.messages.fetch import FetchRequest, FetchResponse
from penstock.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse


class Refuse(NamedTuple):
    """Answer `response` at once."""

    response: FetchResponse
    error: ErrorCode


class Diverging(NamedTuple):
    """Answer `response` at once: the reader's log has to be cut."""

    response: FetchResponse
    end: OffsetAndEpoch


class UseSnapshot(NamedTuple):
    """Answer `response` at once: the reader has to fetch snapshot `id`."""

    response: FetchResponse
    id: OffsetAndEpoch


class Serve(NamedTuple):
    """Put the log's batches from `first` up to `end_offset` into `response`'s one partition.

    With nothing to read and the reader's high watermark (`known_high_watermark`) not behind ours
    the driver may wait, up to the request's max_wait_ms, and then asks `on_fetch` again.
    """

    response: FetchResponse
    first: int
    end_offset: int
    high_watermark: int
    known_high_watermark: int

    @property
    def has_news(self) -> bool:
        return self.first < self.end_offset or self.known_high_watermark < self.high_watermark


class RefuseSnapshot(NamedTuple):
    response: FetchSnapshotResponse
    error: ErrorCode


class ServeSnapshot(NamedTuple):
    """Put size and bytes of snapshot `id` from `position` on into `response`'s one partition.

    With no such snapshot its error is SNAPSHOT_NOT_FOUND, with a position that is not inside it
    POSITION_OUT_OF_RANGE.
    """

    response: FetchSnapshotResponse
    id: OffsetAndEpoch
    position: int
    max_bytes: int


FetchVerdict: TypeAlias = Refuse | Diverging | UseSnapshot | Serve
SnapshotVerdict: TypeAlias = RefuseSnapshot | ServeSnapshot


def on_fetch(core: Core, request: FetchRequest, now_ms: int, came_ms: int) -> FetchVerdict:
    replica_id = max(request.replica_state.replica_id, request.replica_id)
    part = messages.fetch_part(request)
    if not messages.is_ours(core, request.cluster_id):
        error = ErrorCode.INCONSISTENT_CLUSTER_ID
        return Refuse(messages.refused(FetchResponse, error), error)
    if part is None or part.fetch_offset < 0:
        error = ErrorCode.INVALID_REQUEST
        return Refuse(messages.refused(FetchResponse, error), error)
    found = judge_epoch(core, replica_id, part.current_leader_epoch, now_ms)
    if found is not ErrorCode.NONE:
        return Refuse(messages.fetch_response(core, found), found)
    role, log = core.role, core.log
    assert isinstance(role, Leader)
    offset, epoch = part.fetch_offset, part.last_fetched_epoch
    key = ReplicaKey(replica_id, part.replica_directory_id)
    if log.needs_snapshot(offset, epoch) and log.snapshot is not None:
        hear(role, key, now_ms, came_ms)
        return UseSnapshot(messages.fetch_response(core, snapshot=log.snapshot), log.snapshot)
    diverging = log.divergence(offset, epoch)
    if diverging is not None:
        hear(role, key, now_ms, came_ms)
        return Diverging(messages.fetch_response(core, diverging=diverging), diverging)
    if replica_id >= 0 and key != core.me:
        on_fetched(core, role, key, offset, now_ms, came_ms)
        if advance(core, role):
            on_committed(core, role, now_ms)
    return Serve(
        messages.fetch_response(core),
        offset,
        log.end_offset,
        core.high_watermark,
        part.high_watermark,
    )


def judge_epoch(core: Core, replica_id: int, epoch: int, now_ms: int) -> ErrorCode:
    """Whether this node leads, and in the reader's epoch."""
    if epoch > core.epoch and replica_id >= 0:
        # The epoch exists: nobody can be elected in ours any more, and the reader would wait
        # for a leader of its own for ever.
        become_unattached(core, epoch, now_ms)
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not isinstance(core.role, Leader):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if replica_id >= 0 and epoch < core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.NONE


def hear(role: Leader, key: ReplicaKey, now_ms: int, came_ms: int) -> None:
    if key.id >= 0:
        progress = progress_of(role, key, now_ms)
        progress.heard_ms = max(progress.heard_ms, came_ms)


def on_fetch_snapshot(core: Core, request: FetchSnapshotRequest, now_ms: int) -> SnapshotVerdict:
    part = messages.only_partition(request, "partition")
    if not messages.is_ours(core, request.cluster_id):
        error = ErrorCode.INCONSISTENT_CLUSTER_ID
        return RefuseSnapshot(messages.refused(FetchSnapshotResponse, error), error)
    if part is None:
        error = ErrorCode.INVALID_REQUEST
        return RefuseSnapshot(messages.refused(FetchSnapshotResponse, error), error)
    snapshot_id = OffsetAndEpoch(part.snapshot_id.end_offset, part.snapshot_id.epoch)
    error = judge_epoch(core, request.replica_id, part.current_leader_epoch, now_ms)
    response = messages.fetch_snapshot_response(core, error, snapshot_id, part.position)
    if error is not ErrorCode.NONE:
        return RefuseSnapshot(response, error)
    if part.position < 0:
        response.topics[0].partitions[0].error_code = ErrorCode.POSITION_OUT_OF_RANGE
        return RefuseSnapshot(response, ErrorCode.POSITION_OUT_OF_RANGE)
    assert isinstance(core.role, Leader)
    key = ReplicaKey(request.replica_id, part.replica_directory_id)
    hear(core.role, key, now_ms, came_ms=now_ms)
    return ServeSnapshot(response, snapshot_id, part.position, request.max_bytes)
