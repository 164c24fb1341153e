"""The metadata quorum (KRaft: KIP-595, 630, 853, 996): the interface of the pure core.

Events go in by the methods of `Quorum`; what has to be done comes out as a list of effects
(`raft/effects.py`). The core mirrors the log (its ends, its epochs, the voters) and never reads it.
One thread, the driver's, calls it. Duties of the driver:

1.  Carry out the effects of a call from first to last before the next call. `WriteState`,
    `Truncate` and `InstallSnapshot` are durable before the next effect; an answer or a request
    that comes after a `WriteState` relies on it. Tell `on_state_written` how long it took.
2.  `now_ms` counts milliseconds since 1970 but never goes back: take the wall clock at the start
    and add monotonic time.
3.  After every call read `next_deadline_ms`, and call `tick` at that time.
4.  `Append` and what `append` returns go to the log's end as they are: offsets and epochs are
    inside. If the log does not take one, call `on_refused` with it; nothing may have been appended
    after it.
5.  Flush the log after appends (one flush may cover many) and call `on_flushed` with the end that
    the flush covers. A flush that was begun before a `Truncate` or an `InstallSnapshot` is not
    reported.
6.  `Send`: send `request` in `version` (lower if the peer is older) to the address, and call
    `on_response` or `on_failed` with its token. When a connection to a node is refused, call
    `on_connection_refused` as well: its process has ended.
7.  A request of a peer goes to `handle` with a token of yours; the answer comes as `Reply` with
    that token, at once or later. What is not answered by the time the node stops is not answered.
8.  Fetch goes to `on_fetch`. Carry out the effects; answer `Refuse`, `Diverging` and `UseSnapshot`
    with their response. For `Serve` with `has_news` read whole batches from `first` on into the
    response's partition; without news wait until `log_end_offset`, `high_watermark` or
    `leader_and_epoch` change or max_wait_ms is over, then call `on_fetch` again, with the time at
    which the request came, and answer what it says then. FetchSnapshot goes to `on_fetch_snapshot`.
9.  Only what lies below `high_watermark` is applied to the image that is served. `Committed`
    reports each move; it never passes what is flushed here.
10. `WriteSnapshot` with position 0 begins a new partial file. `LoadSnapshot`: read it (in another
    thread if it is large), then call `on_snapshot_loaded`, or `on_snapshot_load_failed`; only
    `InstallSnapshot` makes it the state of this node. A start that finds the latest snapshot
    beyond the log's end empties the log first, so that it starts and ends at the snapshot's end.
    When the driver itself has written a snapshot, it calls `on_snapshot_written`; when it has
    trimmed the log's head, `on_log_trimmed`. `snapshot_records` are a snapshot's first records.
11. Stop with `resign` on a clean shutdown, carry out its effects, and call nothing more.

Invariants: one leader per epoch; epoch and high watermark never go back; nothing below the high
watermark is truncated; nothing is committed without a majority of the voter set in force.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.base.clock import Rng
from penstock.base.errors import ErrorCode, invariant
from penstock.raft import control_records
from penstock.raft.changes import (
    on_committed,
)
from penstock.raft.core import SLOW_SYNC_MS, Core
from penstock.raft.dispatch import FAILURES, POLLS, REQUESTS, RESPONSES
from penstock.raft.effects import Append, Destination, Effect, LeaderChanged
from penstock.raft.epochs import LogMirror
from penstock.raft.fetching import (
    FetchVerdict,
    SnapshotVerdict,
    on_fetch,
    on_fetch_snapshot,
)
from penstock.raft.follower import (
    on_connection_refused,
)
from penstock.raft.follower import on_flushed as on_follower_flushed
from penstock.raft.leader import (
    advance,
    resign,
)
from penstock.raft.snapshots import (
    on_load_failed,
    on_loaded,
    on_trimmed,
    on_written,
)
from penstock.raft.state import QuorumState
from penstock.raft.states import (
    Follower,
    Leader,
)
from penstock.raft.stored import StoredLog
from penstock.raft.transitions import become_follower, become_unattached
from penstock.raft.types import (
    NEVER_MS,
    NO_NODE,
    Endpoint,
    OffsetAndEpoch,
    QuorumConfig,
    ReplicaKey,
)
from penstock.raft.voters import History, VoterSet
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.messages.fetch_snapshot import FetchSnapshotRequest
from penstock.wire.records import Record
from penstock.wire.schema import Message


class Quorum:
    """One replica of the metadata quorum, voter or observer."""

    __slots__ = ("_core", "_reported", "_started")

    def __init__(
        self,
        me: ReplicaKey,
        config: QuorumConfig,
        stored: StoredLog,
        state: QuorumState | None,
        endpoints: Sequence[Endpoint],
        rng: Rng,
    ) -> None:
        """`state`: what the quorum-state file says, None when there is none; `endpoints`: where
        this node is reached.
        """
        log = LogMirror(stored.start, stored.end_offset, stored.epochs, stored.snapshot)
        election = state or QuorumState()
        if log.last_epoch > election.leader_epoch:
            election = QuorumState(log.last_epoch)
        core = Core(me, config, tuple(endpoints), log, election, rng)
        core.voter_sets = History(stored.voter_sets)
        core.versions = History(stored.versions)
        if stored.snapshot is not None:
            core.high_watermark = max(core.high_watermark, stored.snapshot.offset)
        if config.founder and not len(core.voters):
            core.found()
        self._core = core
        self._started = False
        self._reported = LeaderChanged(NO_NODE, election.leader_epoch)

    # -- what is so ----------------------------------------------------------------------------

    @property
    def me(self) -> ReplicaKey:
        return self._core.me

    @property
    def epoch(self) -> int:
        return self._core.epoch

    @property
    def leader_id(self) -> int:
        """The leader that this node is or follows; -1: none."""
        return self._core.leader_id

    @property
    def leader_and_epoch(self) -> tuple[int, int]:
        return self._core.leader_id, self._core.epoch

    @property
    def leader_address(self) -> Destination | None:
        """Where the leader is; None when there is none, or it is this node."""
        role = self._core.role
        return self._core.address_of(role.leader_id) if isinstance(role, Follower) else None

    def address_of(self, node_id: int) -> Destination | None:
        """Where a voter is reached, None if that is not known."""
        return self._core.address_of(node_id)

    @property
    def is_leader(self) -> bool:
        return isinstance(self._core.role, Leader)

    @property
    def is_active(self) -> bool:
        """Leads, and the record that began the epoch is committed."""
        role = self._core.role
        return isinstance(role, Leader) and self._core.high_watermark > role.start_offset

    @property
    def is_voter(self) -> bool:
        return self._core.is_voter

    @property
    def role(self) -> str:
        """The name of what this replica is at the moment, for people and metrics."""
        return type(self._core.role).__name__

    @property
    def voters(self) -> VoterSet:
        """The voter set in force, committed or not."""
        return self._core.voters

    @property
    def state(self) -> QuorumState:
        return self._core.election

    @property
    def high_watermark(self) -> int:
        return self._core.high_watermark

    @property
    def log_end_offset(self) -> int:
        return self._core.log.end_offset

    @property
    def next_deadline_ms(self) -> int:
        """When to call `tick`; `NEVER_MS` when only an event can change anything."""
        flying = (sent.deadline_ms for sent in self._core.in_flight.values())
        return min(self._core.role.next_ms(), min(flying, default=NEVER_MS))

    # -- time ----------------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[Effect]:
        """Begin: as follower of the leader in the quorum-state file, or without a leader. A single
        voter leads at once.
        """
        invariant(not self._started, "the quorum is started twice")
        self._started = True
        core, leader_id = self._core, self._core.election.leader_id
        address = core.address_of(leader_id)
        if leader_id in (NO_NODE, core.me.id) or address is None:
            become_unattached(core, core.epoch, now_ms)
        else:
            become_follower(core, core.epoch, leader_id, address, now_ms)
        return self._done(now_ms)

    def tick(self, now_ms: int) -> list[Effect]:
        """A deadline has come."""
        return self._done(now_ms)

    def resign(self, now_ms: int) -> list[Effect]:
        """Give up leadership, as before a clean stop; nothing if this node does not lead."""
        if isinstance(self._core.role, Leader):
            resign(self._core, now_ms)
        return self._done(now_ms)

    def join(self, now_ms: int) -> list[Effect]:
        """From now on this node asks to be a voter, in the place of an entry with its id."""
        self._core.config = self._core.config._replace(auto_join=True)
        return self._done(now_ms)

    # -- peers ---------------------------------------------------------------------------------

    def handle(
        self, token: object, request: Message, now_ms: int, listener: str = ""
    ) -> list[Effect]:
        """A request for the quorum; its answer is a `Reply` with `token`, now or later. `listener`
        is the one that it came in by.
        """
        self._core.asked_by = listener
        REQUESTS[type(request)](self._core, token, request, now_ms)
        return self._done(now_ms)

    def on_fetch(
        self,
        request: FetchRequest,
        now_ms: int,
        came_ms: int | None = None,
        listener: str = "",
    ) -> tuple[FetchVerdict, list[Effect]]:
        """`came_ms`: when the request came in, if that was not just now; `listener`: where."""
        self._core.asked_by = listener
        verdict = on_fetch(self._core, request, now_ms, now_ms if came_ms is None else came_ms)
        return verdict, self._done(now_ms)

    def on_fetch_snapshot(
        self, request: FetchSnapshotRequest, now_ms: int, listener: str = ""
    ) -> tuple[SnapshotVerdict, list[Effect]]:
        self._core.asked_by = listener
        verdict = on_fetch_snapshot(self._core, request, now_ms)
        return verdict, self._done(now_ms)

    def on_response(self, token: int, response: Message, now_ms: int) -> list[Effect]:
        """The answer to a `Send`; one that is too late, or comes twice, changes nothing."""
        sent = self._core.in_flight.pop(token, None)
        if sent is not None and type(sent.request) in RESPONSES:
            RESPONSES[type(sent.request)](self._core, sent, response, now_ms)
        return self._done(now_ms)

    def on_failed(self, token: int, now_ms: int) -> list[Effect]:
        """No answer will come for a `Send`."""
        self._failed(token, now_ms)
        return self._done(now_ms)

    def on_connection_refused(self, node_id: int, now_ms: int) -> list[Effect]:
        """Nothing listens at the address of `node_id`: its process has ended."""
        on_connection_refused(self._core, node_id, now_ms)
        return self._done(now_ms)

    # -- the log -------------------------------------------------------------------------------

    def append(self, values: Sequence[bytes], now_ms: int) -> Append:
        """The leader's batch of metadata records, for the driver to append at once."""
        invariant(self.is_leader, "only a leader appends to the metadata log")
        records = [Record(0, now_ms, None, value) for value in values]
        return self._core.append(records, control=False)

    def on_refused(self, append: Append, now_ms: int) -> list[Effect]:
        """The log refused `append`, the latest one: undo it."""
        core, role = self._core, self._core.role
        invariant(
            core.log.end_offset == append.last + 1 and append.first >= core.log.flushed_offset,
            "only the latest append can be refused",
        )
        core.log.truncate(append.first)
        core.voter_sets.truncate(append.first)
        core.versions.truncate(append.first)
        if isinstance(role, Leader):
            if role.pending is not None and role.pending.offset >= append.first:
                core.reply(role.pending.token, role.pending.answer(ErrorCode.KAFKA_STORAGE_ERROR))
                role.pending = None
            if append.first <= role.start_offset:
                resign(core, now_ms)
        elif isinstance(role, Follower):
            role.fetch_ms = now_ms + core.config.retry_backoff_ms
        return self._done(now_ms)

    def on_state_written(self, took_ms: int) -> None:
        """A `WriteState` is durable, after so long."""
        if took_ms >= SLOW_SYNC_MS:
            self._core.sync_ms = max(self._core.sync_ms, took_ms)

    def on_flushed(self, end_offset: int, now_ms: int) -> list[Effect]:
        """The log is on disk up to `end_offset`."""
        core, role = self._core, self._core.role
        invariant(
            end_offset <= core.log.end_offset,
            f"the metadata log is flushed to {end_offset}, beyond its end {core.log.end_offset}",
        )
        core.log.flushed_offset = max(core.log.flushed_offset, end_offset)
        if isinstance(role, Leader):
            if advance(core, role):
                on_committed(core, role, now_ms)
        elif isinstance(role, Follower):
            on_follower_flushed(core, role, now_ms)
        return self._done(now_ms)

    def on_snapshot_loaded(
        self,
        snapshot_id: OffsetAndEpoch,
        kraft_version: int | None,
        voters: VoterSet | None,
        now_ms: int,
    ) -> list[Effect]:
        """`LoadSnapshot` is done; `kraft_version` and `voters` are those of the snapshot. If it is
        still wanted, `InstallSnapshot` follows; if not, drop it.
        """
        on_loaded(self._core, snapshot_id, kraft_version, voters, now_ms)
        return self._done(now_ms)

    def on_snapshot_load_failed(self, now_ms: int) -> list[Effect]:
        """What was fetched is not a snapshot."""
        on_load_failed(self._core, now_ms)
        return self._done(now_ms)

    def on_snapshot_written(self, snapshot_id: OffsetAndEpoch) -> None:
        on_written(self._core, snapshot_id)

    def on_log_trimmed(self, start_offset: int) -> None:
        """The log begins at `start_offset` now, the end of a snapshot that is kept."""
        on_trimmed(self._core, start_offset)

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at `offset`; a snapshot of what lies below `n` has the id
        `(n, epoch_at(n - 1))`.
        """
        return self._core.log.epoch_at(offset)

    def snapshot_records(
        self, snapshot_id: OffsetAndEpoch, last_contained_log_timestamp: int, now_ms: int
    ) -> list[Record]:
        """The control records that snapshot `snapshot_id` begins with."""
        core = self._core
        records = [control_records.snapshot_header(last_contained_log_timestamp, now_ms)]
        version = core.versions.before(snapshot_id.offset)
        if version is not None:
            records.append(control_records.kraft_version(version, now_ms))
        voters = core.voter_sets.before(snapshot_id.offset)
        if voters is not None and version is not None:
            records.append(control_records.voters_record(voters, now_ms))
        return records

    # -- after every event ---------------------------------------------------------------------

    def _failed(self, token: int, now_ms: int) -> None:
        sent = self._core.in_flight.pop(token, None)
        if sent is not None and type(sent.request) in FAILURES:
            FAILURES[type(sent.request)](self._core, sent, now_ms)

    def _done(self, now_ms: int) -> list[Effect]:
        """Do what is due, until the role no longer changes."""
        core = self._core
        core.asked_by = ""
        late = [t for t, sent in core.in_flight.items() if sent.deadline_ms <= now_ms]
        for token in late:
            self._failed(token, now_ms)
        polled = None
        while polled is not core.role:
            polled = core.role
            for poll in POLLS[type(polled)]:
                if core.role is polled:
                    poll(core, polled, now_ms)
        change = LeaderChanged(core.leader_id, core.epoch)
        if change != self._reported:
            self._reported = change
            core.effects.append(change)
        effects, core.effects = core.effects, []
        return effects
