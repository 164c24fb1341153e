"""Drives the metadata quorum: the pure core on the event loop, the disk and the network.

Every event (a request, an answer, a flush, a deadline) is passed to `raft.quorum` in turn, and all
effects of one are carried out before the next: an event that arrives while an effect waits for the
disk is queued. Votes and truncations are on disk before anything is sent.

A change on the active controller: a decision gives `(records, response)`; the records are appended
to the `__cluster_metadata` log as one batch and applied to the controller's own image, so that the
next decision builds on them; followers fetch them, an fsync in a worker thread makes them durable
here; once a majority has them they are committed, applied to the image that the broker serves from,
listeners are called, and the response is sent.

Invariants: nothing uncommitted is ever visible outside the controller; responses are given in the
order of their records. When the log refuses an append, nothing has changed. When an fsync fails, it
is unknown what the disk has kept: this node takes no further part until a restart has read it back.
Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from penstock.base.clock import Clock, Rng
from penstock.base.errors import (
    ApiError,
    ErrorCode,
    InvariantBroken,
    StorageError,
    invariant,
)
from penstock.config.layers import BrokerSettings
from penstock.controlling.committed_metadata import CommittedMetadata
from penstock.controlling.controller_seat import ControllerSeat
from penstock.controlling.metadata_log import MetadataLog
from penstock.controlling.quorum_fetches import QuorumFetches, Then
from penstock.controlling.snapshot_fetching import SnapshotFetching
from penstock.controlling.snapshot_writing import SnapshotWriting
from penstock.log.flush import FlushTask
from penstock.peers.connection import Address
from penstock.peers.errors import PeerError, PeerRefused
from penstock.peers.peers import Channel, Knock, Peers, knock
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
from penstock.raft.quorum import Quorum
from penstock.raft.types import NEVER_MS, NO_NODE, Endpoint, QuorumConfig, ReplicaKey
from penstock.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from penstock.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.messages.fetch_snapshot import FetchSnapshotRequest
from penstock.wire.messages.vote import VoteRequest
from penstock.wire.schema import Message

logger = logging.getLogger("penstock.controlling")

DISK_FULL_RETRY_S = 0.5
RESIGN_S_MAX = 1.0
"""How long a stopping leader waits until its voters know."""


class QuorumDriver:
    def __init__(
        self,
        log: MetadataLog,
        peers: Peers,
        settings: BrokerSettings,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self.log = log
        self.metadata = CommittedMetadata(log, self._applied)
        self.fetches = QuorumFetches(self)
        self.failure: str | None = None
        """Why this node takes no more part in the quorum; None if it does."""
        self.seat = ControllerSeat(self, settings, rng)
        self.peers = peers
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self.wall_ms = clock.now_ms
        """The time of day, in milliseconds since 1970."""
        self._started_ms = clock.now_ms() - int(self._loop.time() * 1000)
        self._quorum: Quorum | None = None
        self._known_leader_id = NO_NODE
        self._inbox: deque[Callable[[int], Sequence[Effect | Then]]] = deque()
        self._busy = False
        self._blocking = False
        self._idle: asyncio.Future[None] | None = None
        self._changed: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._syncing = False
        self._fetching = SnapshotFetching(self)
        self._writing = SnapshotWriting(self, settings)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="metadata-flush")

    # -- state ---------------------------------------------------------------------------------

    @property
    def quorum(self) -> Quorum:
        assert self._quorum is not None
        return self._quorum

    @property
    def has_started(self) -> bool:
        return self._quorum is not None

    @property
    def leader_id(self) -> int:
        """The leader of the quorum, which is or will be the active controller; -1: not known."""
        return NO_NODE if self._quorum is None else self._quorum.leader_id

    @property
    def leader_address(self) -> Address | None:
        """Where the leader is, unless it is this node or not known."""
        found = None if self._quorum is None else self._quorum.leader_address
        return None if found is None else _address(found)

    @property
    def next_offset(self) -> int:
        """The offset that the next record will have."""
        return self.quorum.log_end_offset

    def now_ms(self) -> int:
        """Milliseconds since 1970 as the start knew them; they never go back."""
        return self._started_ms + int(self._loop.time() * 1000)

    # -- start and stop ------------------------------------------------------------------------

    def start(
        self, me: ReplicaKey, cluster_id: str, config: QuorumConfig, endpoints: Sequence[Endpoint]
    ) -> None:
        """Take part in the quorum; a node that votes alone leads when this returns.

        It is called before the node serves, so it may wait for the disk.
        """
        self.seat.cluster_id = cluster_id
        self._quorum = quorum = Quorum(
            me, config, self.log.stored(), self.log.read_state(), endpoints, self._rng
        )
        self.metadata.advance_now(quorum.high_watermark)
        self._blocking = True
        try:
            self.event(quorum.start)
            while self.failure is None and self.log.unflushed:
                self._synced(self._flush_now())
        finally:
            self._blocking = False
        if self.failure is not None:
            raise StorageError(self.failure)

    async def resign(self) -> None:
        """Give up leadership before a clean stop and let the voters know."""
        if self._quorum is None or not self._quorum.is_leader or self.failure is not None:
            return
        before = set(self._tasks)
        self.event(self.quorum.resign)
        notifying = [task for task in self._tasks if task not in before]
        if notifying:
            await asyncio.wait(notifying, timeout=RESIGN_S_MAX)

    async def is_lost(self) -> bool:
        """Whether so many voters' processes are gone that there cannot be a leader."""
        quorum = self.quorum
        others = [key for key in quorum.voters.keys if key != quorum.me]
        found = await asyncio.gather(*(self._knock_at_voter(key.id) for key in others))
        reachable = len(quorum.voters) - sum(answer is Knock.REFUSED for answer in found)
        return reachable < quorum.voters.majority

    async def _knock_at_voter(self, node_id: int) -> Knock:
        found = self.quorum.address_of(node_id)
        return Knock.SILENT if found is None else await knock(_address(found))

    def stop(self) -> None:
        self.failure = self.failure or "the node is stopping"
        self.seat.lost()
        self._writing.stop()
        self.fetches.stop()
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        self._fetching.drop()
        self._pool.shutdown()

    # -- events --------------------------------------------------------------------------------

    def event(self, happened: Callable[[int], Sequence[Effect | Then]]) -> None:
        """Pass an event to the core, when its turn has come; after a failure none is."""
        if self.failure is not None:
            return
        self._inbox.append(happened)
        if not self._busy:
            self._work()

    def _work(self) -> None:
        while self._inbox and not self._busy and self.failure is None:
            try:
                effects = deque(self._inbox.popleft()(self.now_ms()))
            except InvariantBroken as e:
                self.fail(e)
                raise
            self._perform(effects)
        if self._busy or self.failure is not None:
            return
        self._arm()
        self.fetches.wake()
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    def _perform(self, effects: deque[Effect | Then]) -> None:
        """Carry out `effects`, as far as none has to wait for the disk."""
        self._busy = True
        try:
            while effects and self.failure is None:
                effect = effects.popleft()
                waiting = _PERFORM[type(effect)](self, effect)
                if waiting is not None:
                    waiting.add_done_callback(lambda done: self._waited(done, effects))
                    return
        except StorageError as e:
            self.fail(e)
        except Exception as e:
            # Half of them are done: nothing that comes after could rely on anything.
            self.fail(e)
            raise
        self._busy = False

    def _waited(self, done: asyncio.Future[None], effects: deque[Effect | Then]) -> None:
        self._busy = False
        if done.cancelled() or self.failure is not None:
            return
        error = done.exception()
        if error is not None:
            self.fail(error)
            return
        self._perform(effects)
        self._work()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self.quorum.next_deadline_ms
        if deadline_ms < NEVER_MS:
            when = (deadline_ms - self._started_ms) / 1000
            self._timer = self._loop.call_at(when, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.event(self.quorum.tick)

    def in_thread(self, work: Callable[[], None]) -> asyncio.Future[None]:
        """Do what waits for the disk in a worker thread; one such task at a time."""
        return self._loop.run_in_executor(self._pool, work)

    # -- effects -------------------------------------------------------------------------------

    def _write_state(self, effect: WriteState) -> asyncio.Future[None] | None:
        if self._blocking:
            self.log.write_state(effect.text)
            return None
        return self._spawn(self._write_state_when_there_is_room(effect.text))

    async def _write_state_when_there_is_room(self, text: str) -> None:
        """Nothing continues before it is written: a full disk is waited for, any other failure ends
        this node's part in the quorum.
        """
        waits, began_ms = False, self.now_ms()
        while True:
            try:
                await self.in_thread(lambda: self.log.write_state(text))
                self.quorum.on_state_written(self.now_ms() - began_ms)
                return
            except StorageError as e:
                if not (isinstance(e.__cause__, OSError) and e.__cause__.errno == errno.ENOSPC):
                    raise
                if not waits:
                    logger.error("the quorum waits for room on the disk: %s", e)
                waits = True
            await asyncio.sleep(DISK_FULL_RETRY_S)

    def _append_batches(self, effect: Append) -> None:
        try:
            self.log.append(effect)
        except (StorageError, ApiError) as e:
            logger.error("the metadata log refuses records: %s", e)
            self._inbox.appendleft(lambda now_ms: self.quorum.on_refused(effect, now_ms))
            return
        self._sync()

    def _truncate(self, effect: Truncate) -> None:
        self.log.truncate(effect.offset)

    def _send(self, effect: Send) -> None:
        self._spawn(self._exchange(effect))

    async def _exchange(self, send: Send) -> None:
        to = _address(send.to)
        channel = _CHANNELS.get(type(send.request), Channel.FORWARD)
        quorum, timeout_s = self.quorum, send.timeout_ms / 1000
        try:
            response = await self.peers.send(to, channel, send.request, send.version, timeout_s)
        except PeerError as e:
            self.event(lambda now_ms: quorum.on_failed(send.token, now_ms))
            if isinstance(e, PeerRefused) and send.to.node_id != NO_NODE:
                self.event(lambda now_ms: quorum.on_connection_refused(send.to.node_id, now_ms))
            return
        self.event(lambda now_ms: quorum.on_response(send.token, response, now_ms))

    def _reply(self, effect: Reply) -> None:
        future = effect.token
        assert isinstance(future, asyncio.Future)
        if not future.done():
            future.set_result(effect.response)

    def _write_snapshot(self, effect: WriteSnapshot) -> None:
        self._fetching.write(effect)

    def _load_snapshot(self, effect: LoadSnapshot) -> None:
        self._spawn(self._fetching.load(effect))

    def _install_snapshot(self, effect: InstallSnapshot) -> asyncio.Future[None]:
        return self._fetching.begin_install(effect)

    def _committed(self, effect: Committed) -> None:
        if self._blocking:
            self.metadata.advance_now(effect.high_watermark)
        else:
            self.metadata.advance(effect.high_watermark)

    def _became_leader(self, effect: BecameLeader) -> None:
        self.seat.became_leader(effect)

    def _no_longer_leader(self, effect: NoLongerLeader) -> None:
        self.seat.lost()

    def _leader_changed(self, effect: LeaderChanged) -> None:
        extra = {"leader": effect.leader_id, "epoch": effect.epoch}
        if effect.leader_id != NO_NODE:
            logger.info("the quorum has a leader", extra=extra)
        elif self._known_leader_id != NO_NODE:
            logger.info("the quorum has no leader that is known here", extra=extra)
        self._known_leader_id = effect.leader_id
        self.notify_of_change()

    def _then(self, effect: Then) -> None:
        effect.act()

    def _applied(self) -> None:
        """Committed records have reached the image."""
        if self._quorum is not None:
            self.seat.applied(self.metadata.applied_offset)
            self._writing.check()

    # -- the log -------------------------------------------------------------------------------

    async def until_idle(self) -> None:
        """Wait until the effects of earlier events have been carried out."""
        while self._busy and self.failure is None:
            if self._idle is None:
                self._idle = self._loop.create_future()
            await asyncio.shield(self._idle)

    def append(self, values: list[bytes]) -> Append:
        """Append the leader's batch of metadata records; ApiError if it is refused."""
        invariant(not self._busy, "records are appended between events only")
        append = self.quorum.append(values, self.now_ms())
        try:
            self.log.append(append)
        except (StorageError, ApiError) as e:
            self.event(lambda now_ms: self.quorum.on_refused(append, now_ms))
            if len(self.quorum.voters) > 1:
                self.event(self.quorum.resign)  # another disk may have room
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(e)) from e
        self._sync()
        if self.failure is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        self._arm()
        self.fetches.wake()
        return append

    def _sync(self) -> None:
        if self._syncing or self._blocking:
            return
        try:
            task = self.log.flush_begin()
        except StorageError as e:
            self.fail(e)
            return
        self._syncing = True
        work = self.in_thread(task.run)
        work.add_done_callback(lambda _: self._synced(task))

    def _flush_now(self) -> FlushTask:
        task = self.log.flush_begin()
        task.run()
        return task

    def _synced(self, task: FlushTask) -> None:
        self._syncing = False
        if self.failure is not None:
            return
        try:
            end_offset = self.log.flush_done(task)
        except StorageError as e:
            self.fail(e)
            return
        if self.log.unflushed:
            self._sync()
        if end_offset is not None:
            self.event(lambda now_ms: self.quorum.on_flushed(end_offset, now_ms))

    def fail(self, error: BaseException) -> None:
        """The disk failed this node: it takes no further part."""
        if self.failure is not None:
            return
        self.failure = f"the metadata log could not be flushed, restart the node: {error}"
        logger.error("%s", self.failure)
        self.seat.lost()
        self.fetches.stop()
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    # -- requests ------------------------------------------------------------------------------

    def handle(self, request: Message, listener: str = "") -> asyncio.Future[Any]:
        """The response to a request for the quorum that came in by `listener`, later."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self.event(lambda now_ms: self.quorum.handle(future, request, now_ms, listener))
        return future

    def notify_of_change(self) -> None:
        """Wake the calls that wait for another controller."""
        changed, self._changed = self._changed, self._loop.create_future()
        changed.set_result(None)

    async def wait_for_change(self, timeout_s: float, *others: asyncio.Future[Any]) -> None:
        """Until the leader or the active controller is another one, one of `others` is done, or the
        time is over.
        """
        await asyncio.wait(
            [self._changed, *others], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._spawned_done)
        return task

    def _spawned_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            logger.error("an exchange of the quorum failed", exc_info=task.exception())


def _address(to: Destination) -> Address:
    return Address(to.host, to.port, to.listener)


_CHANNELS: dict[type[Message], Channel] = {
    FetchRequest: Channel.METADATA,
    FetchSnapshotRequest: Channel.METADATA,
    VoteRequest: Channel.QUORUM,
    BeginQuorumEpochRequest: Channel.QUORUM,
    EndQuorumEpochRequest: Channel.QUORUM,
}

_PERFORM: dict[type, Callable[[QuorumDriver, Any], asyncio.Future[None] | None]] = {
    WriteState: QuorumDriver._write_state,
    Append: QuorumDriver._append_batches,
    Truncate: QuorumDriver._truncate,
    Send: QuorumDriver._send,
    Reply: QuorumDriver._reply,
    WriteSnapshot: QuorumDriver._write_snapshot,
    LoadSnapshot: QuorumDriver._load_snapshot,
    InstallSnapshot: QuorumDriver._install_snapshot,
    Committed: QuorumDriver._committed,
    BecameLeader: QuorumDriver._became_leader,
    NoLongerLeader: QuorumDriver._no_longer_leader,
    LeaderChanged: QuorumDriver._leader_changed,
    Then: QuorumDriver._then,
}
