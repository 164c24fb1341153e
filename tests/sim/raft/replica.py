"""One replica in the simulation: the core and the simplest driver that keeps its contract."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

from penstock.base.clock import Rng
from penstock.base.errors import ErrorCode
from penstock.raft.effects import (
    Append,
    BecameLeader,
    Committed,
    Destination,
    Effect,
    InstallSnapshot,
    LeaderChanged,
    LoadSnapshot,
    NoLongerLeader,
    Reply,
    Send,
    Truncate,
    WriteSnapshot,
    WriteState,
)
from penstock.raft.fetching import Serve, ServeSnapshot
from penstock.raft.quorum import Quorum
from penstock.raft.state import QuorumState
from penstock.raft.stored import LogScan
from penstock.raft.types import Endpoint, OffsetAndEpoch, QuorumConfig, ReplicaKey
from penstock.raft.voters import VoterSet
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.messages.fetch_snapshot import FetchSnapshotRequest
from penstock.wire.records import Record, build_batch, read_records
from penstock.wire.schema import Message
from sim.raft.checker import Checker
from sim.raft.disk import Disk, split
from sim.raft.world import SeededRng, World

BATCHES_MAX = 4
CHUNK_BYTES = 100
PORTS_OF = {"PLAIN": 0, "SAFE": 1_000}
"""What is added to the port of a replica."""


Back = Callable[[Message | None], None]
"""The way back for an answer; None: the connection breaks, the process behind it is gone."""


class Parked(NamedTuple):
    """A fetch that came in and may wait for news."""

    request: FetchRequest
    back: Back
    came_ms: int
    """By the replica's own clock: it was heard from then, however often this is judged again."""
    until_ms: int
    listener: str


class Crash(Exception):
    """The process dies in the middle of what it does."""


class SimReplica:
    def __init__(self, node_id: int, config: QuorumConfig, world: World, checker: Checker) -> None:
        self.world = world
        self.checker = checker
        self.config = config
        self.key = ReplicaKey(node_id, world.random.randbytes(16))
        self.port = 9092
        self.offers: tuple[str, ...] = ("PLAIN",)
        """Its listeners; by the first one it reaches others."""
        self.disk = Disk()
        self.quorum: Quorum | None = None
        self.skew_ms = 0
        self.high_watermark = 0
        self.peers: list[SimReplica] = []
        self.crash_chance = 0.0
        self.rng: Rng = SeededRng(world.random)
        self._life = 0
        self._tick_at = -1
        self._flushing = False
        self._parked: list[Parked] = []
        self.checked = (-1, -1)
        """End and cuts of the log when core and disk were last compared."""

    @property
    def id(self) -> int:
        return self.key.id

    @property
    def alive(self) -> bool:
        return self.quorum is not None

    @property
    def now_ms(self) -> int:
        return self.world.now_ms + self.skew_ms

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return tuple(
            Endpoint(name, f"n{self.id}", self.port + PORTS_OF[name])
            for name in sorted(self.offers)
        )

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        disk = self.disk
        state = None if disk.state is None else QuorumState.from_json(disk.state)
        self._life += 1
        self._tick_at, self._flushing, self._parked = -1, False, []
        self.checked = (-1, -1)
        rng, endpoints = self.rng, self.endpoints
        self.config = self.config._replace(listeners=self.offers)
        self.high_watermark = 0
        self.quorum = Quorum(self.key, self.config, disk.stored(), state, endpoints, rng)
        self.high_watermark = self.quorum.high_watermark
        self.world.log(f"{self.id} starts, log {disk.start.offset}..{disk.end}")
        self.do(lambda q: q.start(self.now_ms))

    def crash(self) -> None:
        self.world.log(f"{self.id} crashes")
        self._life += 1
        self.quorum = None
        parked, self._parked = self._parked, []
        for fetch in parked:
            fetch.back(None)
        self.disk.crash(self.world.random)

    def wipe(self) -> None:
        """The disk is lost: what comes back is another replica with the same id, which finds that
        the cluster exists already.
        """
        self.world.log(f"{self.id} loses its disk")
        self._life += 1
        self.quorum = None
        self.checker.lost.append((self.key, self.disk))
        self.disk = Disk()
        self.key = ReplicaKey(self.id, self.world.random.randbytes(16))
        self.config = self.config._replace(founder=False)

    def do(self, call: Callable[[Quorum], list[Effect]]) -> None:
        quorum = self.quorum
        if quorum is None:
            return
        try:
            self.perform(call(quorum))
        except Crash:
            self.crash()
            return
        self.checker.after_event(self)
        self.high_watermark = quorum.high_watermark
        self._answer_parked()
        self._schedule_tick()

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Unless the process has died until then."""
        life = self._life
        self.world.after(delay_ms, lambda: action() if self._life == life else None)

    def _schedule_tick(self) -> None:
        if self.quorum is None:
            return
        due = self.quorum.next_deadline_ms - self.skew_ms
        if due == self._tick_at or due > self.world.now_ms + 1_000_000:
            return
        self._tick_at = due
        self.later(max(due - self.world.now_ms, 0), partial(self._tick, due))

    def _tick(self, due: int) -> None:
        if self._tick_at == due:
            self._tick_at = -1
            self.do(lambda q: q.tick(self.now_ms))

    def jump(self, ahead_ms: int) -> None:
        self.world.log(f"{self.id}'s clock jumps {ahead_ms} ms")
        self.skew_ms += ahead_ms
        self.do(lambda q: q.tick(self.now_ms))

    # -- effects -------------------------------------------------------------------------------

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if self.crash_chance and self.world.random.random() < self.crash_chance:
                raise Crash
            self.PERFORM[type(effect)](self, effect)

    def _write_state(self, effect: WriteState) -> None:
        self.disk.state = effect.text

    def _append(self, effect: Append) -> None:
        self.disk.append(bytes(effect.batches))
        self._flush()

    def _flush(self) -> None:
        if not self._flushing and self.disk.flushed < self.disk.end:
            self._flushing = True
            end, cuts = self.disk.end, self.disk.cuts
            self.later(self.world.random.randint(0, 8), partial(self._flushed, end, cuts))

    def _flushed(self, end: int, cuts: int) -> None:
        self._flushing = False
        if cuts == self.disk.cuts:
            self.disk.flushed = max(self.disk.flushed, end)
            self.do(lambda q: q.on_flushed(end, self.now_ms))
        if self.quorum is not None:
            self._flush()

    def _truncate(self, effect: Truncate) -> None:
        self.world.log(f"{self.id} truncates to {effect.offset}")
        self.checker.truncated(self, self.disk.truncate(effect.offset))

    def _committed(self, effect: Committed) -> None:
        self.checker.commits(self, effect.high_watermark, self.peers)
        self.high_watermark = effect.high_watermark

    def _became_leader(self, effect: BecameLeader) -> None:
        self.world.log(f"{self.id} leads epoch {effect.epoch} from {effect.start_offset}")
        self.checker.became_leader(self.key, effect.epoch)

    def _no_longer_leader(self, effect: NoLongerLeader) -> None:
        self.world.log(f"{self.id} leads no longer, epoch {effect.epoch}")

    def _leader_changed(self, effect: LeaderChanged) -> None:
        self.world.log(f"{self.id} knows leader {effect.leader_id} of epoch {effect.epoch}")

    # -- the network ---------------------------------------------------------------------------

    def _send(self, effect: Send) -> None:
        target = next((p for p in self.peers if f"n{p.id}" == effect.to.host), None)
        assert target is not None, effect.to
        if not self._is_open(effect.to, target):
            self.later(1, lambda: self.do(lambda q: q.on_failed(effect.token, self.now_ms)))
            return
        life = self._life
        self.world.message(self.id, target.id, effect.request)

        def back(response: Message | None) -> None:
            if response is None:
                self.world.carry(target.id, self.id, lambda: self._refused(life, effect, target.id))
                return
            self.world.message(target.id, self.id, response)
            read = self.world.wire(response, effect.version)
            self.world.carry(target.id, self.id, lambda: self._response(life, effect, read))

        request = self.world.wire(effect.request, effect.version)
        listener = effect.to.listener
        self.world.carry(self.id, target.id, lambda: target.serve(request, back, listener))

    def _is_open(self, to: Destination, target: SimReplica) -> bool:
        """A bootstrap address is a name that is kept up to date."""
        if to.node_id >= 0:
            return Endpoint(to.listener, to.host, to.port) in target.endpoints
        return to.listener in target.offers

    def _refused(self, life: int, send: Send, node_id: int) -> None:
        if life == self._life:
            self.do(lambda q: q.on_failed(send.token, self.now_ms))
            self.do(lambda q: q.on_connection_refused(node_id, self.now_ms))

    def _response(self, life: int, send: Send, response: Message) -> None:
        if life == self._life:
            self.do(lambda q: q.on_response(send.token, response, self.now_ms))

    def serve(self, request: Message, back: Back, listener: str = "") -> None:
        if self.quorum is None:
            back(None)
        elif isinstance(request, FetchRequest):
            until_ms = self.world.now_ms + request.max_wait_ms
            self._serve_fetch(Parked(request, back, self.now_ms, until_ms, listener))
        elif isinstance(request, FetchSnapshotRequest):
            self._serve_snapshot(request, back, listener)
        else:
            self.do(lambda q: q.handle(back, request, self.now_ms, listener))

    def _reply(self, effect: Reply) -> None:
        effect.token(effect.response)  # type: ignore[operator]

    def _serve_fetch(self, fetch: Parked) -> None:
        found: list[Any] = []

        def ask(quorum: Quorum) -> list[Effect]:
            verdict, effects = quorum.on_fetch(
                fetch.request, self.now_ms, fetch.came_ms, fetch.listener
            )
            found.append(verdict)
            return effects

        self.do(ask)
        if self.quorum is None:
            return
        verdict = found[0]
        if isinstance(verdict, Serve):
            if not verdict.has_news and self.world.now_ms < fetch.until_ms:
                self._parked.append(fetch)
                self.later(fetch.until_ms - self.world.now_ms, self._answer_parked)
                return
            part = verdict.response.responses[0].partitions[0]
            part.records = self.disk.read(verdict.first, BATCHES_MAX)
        fetch.back(verdict.response)

    def _answer_parked(self) -> None:
        quorum = self.quorum
        if quorum is None or not self._parked:
            return
        still: list[Parked] = []
        due: list[Parked] = []
        for entry in self._parked:
            part = entry.request.topics[0].partitions[0]
            news = (
                not quorum.is_leader
                or part.current_leader_epoch != quorum.epoch
                or part.fetch_offset < quorum.log_end_offset
                or part.high_watermark < quorum.high_watermark
                or entry.until_ms <= self.world.now_ms
            )
            (due if news else still).append(entry)
        self._parked = still
        for fetch in due:
            self._serve_fetch(fetch)

    # -- snapshots -----------------------------------------------------------------------------

    def take_snapshot(self, *, trim: bool) -> None:
        quorum, disk = self.quorum, self.disk
        end = 0 if quorum is None else quorum.high_watermark
        if quorum is None or end <= max([s.offset for s in disk.snapshots], default=0):
            return
        snapshot = OffsetAndEpoch(end, quorum.epoch_at(end - 1))
        self.world.log(f"{self.id} takes snapshot {snapshot}")
        control = build_batch(quorum.snapshot_records(snapshot, 0, self.now_ms), control=True)
        digest = self.checker.digests[end]
        disk.snapshots[snapshot] = control + build_batch([Record(0, 0, None, digest)])
        quorum.on_snapshot_written(snapshot)
        if trim:
            disk.trim(snapshot)
            quorum.on_log_trimmed(end)

    def _serve_snapshot(self, request: FetchSnapshotRequest, back: Back, listener: str) -> None:
        found: list[Any] = []

        def ask(quorum: Quorum) -> list[Effect]:
            verdict, effects = quorum.on_fetch_snapshot(request, self.now_ms, listener)
            found.append(verdict)
            return effects

        self.do(ask)
        if self.quorum is None:
            return
        verdict = found[0]
        if isinstance(verdict, ServeSnapshot):
            part = verdict.response.topics[0].partitions[0]
            data = self.disk.snapshots.get(verdict.id)
            if data is None:
                part.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
            else:
                part.size = len(data)
                part.unaligned_records = data[verdict.position :][:CHUNK_BYTES]
        back(verdict.response)

    def _write_snapshot(self, effect: WriteSnapshot) -> None:
        if effect.position == 0:
            self.disk.partial = bytearray()
        assert len(self.disk.partial) == effect.position
        self.disk.partial += effect.chunk

    def _load(self, effect: LoadSnapshot) -> None:
        scan = LogScan()
        *controls, _ = split(bytes(self.disk.partial))
        for batch in controls:
            scan.log_batch(batch)
        version, voters = scan.versions[-1][1], scan.voter_sets[-1][1]
        self.later(
            self.world.random.randint(0, 10),
            lambda: self.do(
                lambda q: q.on_snapshot_loaded(effect.id, version, voters, self.now_ms)
            ),
        )

    def _install(self, effect: InstallSnapshot) -> None:
        digest = read_records(split(bytes(self.disk.partial))[-1])[0].value or b""
        self.world.log(f"{self.id} installs snapshot {effect.id}")
        self.checker.installed(self, effect.id, digest)
        self.checker.truncated(self, [b for b in self.disk.batches if b.last >= effect.id.offset])
        self.disk.install(effect.id)

    # -- what the checker asks -----------------------------------------------------------------

    def voter_record_offsets(self) -> list[int]:
        return [
            offset
            for batch in self.disk.batches
            for offset, said in batch.said
            if isinstance(said, VoterSet)
        ]

    PERFORM: ClassVar[dict[type, Callable[[SimReplica, Any], None]]] = {
        WriteState: _write_state,
        Append: _append,
        Truncate: _truncate,
        Send: _send,
        Reply: _reply,
        WriteSnapshot: _write_snapshot,
        LoadSnapshot: _load,
        InstallSnapshot: _install,
        Committed: _committed,
        BecameLeader: _became_leader,
        NoLongerLeader: _no_longer_leader,
        LeaderChanged: _leader_changed,
    }
