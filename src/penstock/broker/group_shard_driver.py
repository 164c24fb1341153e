"""Drives one shard of the group coordinator: one partition of `__consumer_offsets`.

The way of a request: the pure shard answers it with effects at once; their records are staged in
the partition's log, and what one loop turn stages is written with one system call; the answers wait
until the high watermark has passed the records, also those of requests that only read, since they
may rest on records that are not committed yet. Timers are the loop's.

A shard is loaded by replaying its partition, a piece at a time, while requests are turned away with
COORDINATOR_LOAD_IN_PROGRESS. When records cannot be appended or made durable, or the shard breaks
an invariant, its memory may say what the log does not: everybody who waits is turned away, the
shard is thrown away and the partition replayed.

When the records of a turn are not committed in time (too few replicas are in sync), those who wait
for them are told so and the shard stays: its records may yet be committed. While the partition is
under its minimum of replicas in sync, requests that are sure to write are turned away at once.

Invariants: no answer is given before the records it rests on are committed; after a failure
nothing of the shard before it is used. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.clock import Clock
from penstock.base.errors import (
    ApiError,
    CorruptRecord,
    ErrorCode,
    PenstockError,
    StorageError,
    invariant,
)
from penstock.broker.partition import ACKS_ALL, Partition, Role
from penstock.coordinator.effects import (
    Caller,
    CoordinatorRecord,
    Effects,
    Reply,
    SetTimer,
    TimerKey,
)
from penstock.coordinator.refusals import refuse
from penstock.coordinator.shard import GroupShard
from penstock.log.log import Batch
from penstock.log.producer_state import AppendOrigin
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest
from penstock.wire.messages.offset_commit import OffsetCommitRequest
from penstock.wire.messages.offset_delete import OffsetDeleteRequest
from penstock.wire.messages.sync_group import SyncGroupRequest
from penstock.wire.records import Record, build_batch, parse_header, read_records

if TYPE_CHECKING:
    from penstock.log.slice import LogSlice
    from penstock.wire.schema import Message

log = logging.getLogger("penstock.broker")

LOAD_READ_BYTES = 1024 * 1024
"""How much of the partition one step of a replay reads, so that requests go on in between."""
RELOAD_PAUSE_S = 0.5
"""How long a failed shard waits before its partition is replayed."""


class ShardState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


_TURNED_AWAY = {
    ShardState.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ShardState.FAILED: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ShardState.CLOSED: ErrorCode.NOT_COORDINATOR,
}


_SURE_TO_WRITE = (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    JoinGroupRequest,
    SyncGroupRequest,
    LeaveGroupRequest,
    DeleteGroupsRequest,
)


class _Waiting(NamedTuple):
    request: Message
    version: int
    answer: asyncio.Future[Message]


class _Turn:
    """The answers that wait for the records of one loop turn to be committed."""

    __slots__ = ("_driver", "end_offset", "replies", "timer")
    outlives_leadership = False

    def __init__(self, driver: GroupShardDriver) -> None:
        self._driver = driver
        self.end_offset = 0
        self.replies: list[Reply] = []
        self.timer: asyncio.TimerHandle | None = None

    def partition_done(self) -> None:
        self._driver.committed(self)

    def partition_failed(self, _: Partition, code: ErrorCode, message: str) -> None:
        self._driver.fail(f"{code.name}: {message}")


class _Timer:
    __slots__ = ("armed_for", "deadline_ms", "due", "handle")

    def __init__(self, deadline_ms: int, due: float, handle: asyncio.TimerHandle) -> None:
        self.deadline_ms = deadline_ms
        self.due = due
        self.handle = handle
        self.armed_for = due  # when the handle fires; `due` may have been put off since


class GroupShardDriver:
    def __init__(
        self,
        partition: Callable[[], Partition],
        make_shard: Callable[[], GroupShard],
        clock: Clock,
        run_woken: Callable[[], None],
        *,
        leader_epoch: int,
        commit_timeout_s: float,
    ) -> None:
        """`partition` gives the partition as it is led now, or raises ApiError; `run_woken`
        answers fetches that an append made answerable; `leader_epoch` is the one that the shard
        belongs to.
        """
        self.leader_epoch = leader_epoch
        self._commit_timeout_s = commit_timeout_s
        self._find_partition = partition
        self._make_shard = make_shard
        self._clock = clock
        self._run_woken = run_woken
        self._loop = asyncio.get_running_loop()
        self.state = ShardState.LOADING
        self.shard = make_shard()
        self._partition: Partition | None = None
        self._loading: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._tokens = 0
        self._waiting: dict[int, _Waiting] = {}
        self._staged: _Turn | None = None
        self._uncommitted: list[_Turn] = []
        self._timers: dict[TimerKey, _Timer] = {}

    # -- requests ------------------------------------------------------------------------------

    def submit(
        self, request: Message, version: int, client_id: str, client_host: str
    ) -> Message | Awaitable[Message]:
        """The answer, or a promise of it."""
        if self.state is not ShardState.ACTIVE:
            return refuse(request, version, _TURNED_AWAY[self.state])
        assert self._partition is not None
        if self._partition.under_min_isr and isinstance(request, _SURE_TO_WRITE):
            return refuse(request, version, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._tokens += 1
        caller = Caller(self._tokens, version, client_id, client_host)
        waiting = _Waiting(request, version, self._loop.create_future())
        self._waiting[caller.token] = waiting
        self._event(lambda shard, now_ms: shard.handle(request, caller, now_ms))
        if waiting.answer.done():
            return waiting.answer.result()
        return waiting.answer

    def event(self, happen: Callable[[GroupShard, int], Effects]) -> bool:
        """Something other than a request; whether records followed from it."""
        return self.state is ShardState.ACTIVE and self._event(happen)

    def _event(self, happen: Callable[[GroupShard, int], Effects]) -> bool:
        now_ms = self._clock.now_ms()
        try:
            effects = happen(self.shard, now_ms)
            self._perform(effects, now_ms)
        except (StorageError, ApiError) as e:
            self.fail(str(e))
        except Exception as e:
            log.exception("the group coordinator failed and replays its partition")
            self.fail(f"{type(e).__name__}: {e}")
        else:
            return bool(effects.records)
        return False

    def _perform(self, effects: Effects, now_ms: int) -> None:
        if effects.records:
            self._stage(effects.records, now_ms)
        for timer in effects.timers:
            if isinstance(timer, SetTimer):
                self._set_timer(timer, now_ms)
            else:
                self._cancel_timer(timer.key)
        if not effects.replies:
            return
        last = self._staged or (self._uncommitted[-1] if self._uncommitted else None)
        if last is None:
            self._give(effects.replies)
        else:
            last.replies += effects.replies

    def _give(self, replies: list[Reply]) -> None:
        for token, response in replies:
            waiting = self._waiting.pop(token, None)
            if waiting is not None and not waiting.answer.done():
                waiting.answer.set_result(response)

    # -- appending -----------------------------------------------------------------------------

    def _stage(self, records: list[CoordinatorRecord], now_ms: int) -> None:
        partition = self._partition
        assert partition is not None
        invariant(
            partition.role is Role.LEADER and partition.leader_epoch == self.leader_epoch,
            f"a shard of leader epoch {self.leader_epoch} writes to {partition!r}",
        )
        data = build_batch([Record(0, now_ms, key, value, ()) for key, value in records])
        batch = Batch(parse_header(data), data)
        info = partition.log.stage(
            [batch], partition.leader_epoch, now_ms, AppendOrigin.COORDINATOR
        )
        if self._staged is None:
            self._staged = _Turn(self)
            self._loop.call_soon(self.write_turn)
        self._staged.end_offset = info.last_offset + 1

    def write_turn(self) -> None:
        """Write what this turn has staged; at its end, or before a log is changed otherwise."""
        turn, self._staged = self._staged, None
        if turn is None or self._partition is None:
            return
        partition = self._partition
        try:
            partition.write_staged()
        except PenstockError as e:
            self.fail(str(e))
            return
        if partition.log.log_end_offset < turn.end_offset:
            # Somebody else's write to this log took what was staged with it and failed.
            self.fail("what was staged has not been written")
            return
        self._uncommitted.append(turn)
        if partition.acknowledges(turn.end_offset, ACKS_ALL):
            self.committed(turn)
        else:
            self._wait(partition, turn)
        self._run_woken()

    def _wait(self, partition: Partition, turn: _Turn) -> None:
        turn.timer = self._loop.call_later(self._commit_timeout_s, self._overdue, turn)
        partition.wait_for(turn.end_offset, ACKS_ALL, turn)

    def _overdue(self, turn: _Turn) -> None:
        """The records of `turn` are still not committed: nobody is kept waiting any longer."""
        turn.timer = self._loop.call_later(self._commit_timeout_s, self._overdue, turn)
        replies, turn.replies = turn.replies, []
        for token, _ in replies:
            self._refuse(token, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def committed(self, turn: _Turn) -> None:
        """The high watermark has passed the records of `turn`."""
        if turn in self._uncommitted:
            if turn.timer is not None:
                turn.timer.cancel()
            self._uncommitted.remove(turn)
            self._give(turn.replies)

    # -- timers --------------------------------------------------------------------------------

    def _set_timer(self, timer: SetTimer, now_ms: int) -> None:
        due = self._loop.time() + max(timer.deadline_ms - now_ms, 0) / 1000
        found = self._timers.get(timer.key)
        if found is not None:
            if found.armed_for <= due:
                # Heartbeats put timers off all the time: the old one looks again when it fires.
                found.deadline_ms, found.due = timer.deadline_ms, due
                return
            found.handle.cancel()
        handle = self._loop.call_at(due, self._timer_fired, timer.key)
        self._timers[timer.key] = _Timer(timer.deadline_ms, due, handle)

    def _cancel_timer(self, key: TimerKey) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.handle.cancel()

    def _timer_fired(self, key: TimerKey) -> None:
        timer = self._timers[key]
        if timer.due > timer.armed_for:
            timer.armed_for = timer.due
            timer.handle = self._loop.call_at(timer.due, self._timer_fired, key)
            return
        del self._timers[key]
        # The wall clock may have been set back since: the group must not think it too early.
        deadline_ms = timer.deadline_ms
        self.event(lambda shard, now_ms: shard.on_timer(key, max(now_ms, deadline_ms)))

    # -- loading -------------------------------------------------------------------------------

    def load(self) -> None:
        """Replay the partition; in the background unless it is empty."""
        self.state = ShardState.LOADING
        self._retry = None
        try:
            partition = self._partition = self._find_partition()
            # A shard that failed may have left something staged: it is the log's now.
            partition.write_staged()
        except PenstockError as e:
            log.error("the group coordinator cannot open its partition: %s", e)
            self._retry_later()
            return
        if partition.log.health.for_good:
            # What is in the log will never be known to be durable, so no answer can rest on it.
            self._stand_still(partition, partition.log.failure or "")
            return
        if partition.log.log_start_offset == partition.log.log_end_offset:
            self._activate(partition)
        else:
            self._loading = self._loop.create_task(self._replay(partition))

    async def _replay(self, partition: Partition) -> None:
        try:
            log_ = partition.log
            offset = log_.log_start_offset
            while offset < log_.log_end_offset:
                offset = max(offset, log_.log_start_offset)
                found = log_.read(offset, LOAD_READ_BYTES, up_to_offset=log_.log_end_offset)
                if found is None:
                    break
                offset = await self._replay_slice(found, offset)
            self._activate(partition)
        except CorruptRecord as e:
            # Going on without a record would lose what it says.
            self._stand_still(partition, str(e))
        except PenstockError as e:
            log.error("replay of %s-%d failed: %s", partition.topic, partition.index, e)
            self._retry_later()

    async def _replay_slice(self, found: LogSlice, offset: int) -> int:
        data = memoryview(await self._loop.run_in_executor(None, found.read))
        position = 0
        while position < len(data):
            header = parse_header(data, position)
            if not header.is_control:
                for record in read_records(data[position : position + header.size]):
                    if record.offset >= offset and record.key is not None:
                        self.shard.replay(record.key, record.value, record.timestamp)
            position += header.size
            offset = header.last_offset + 1
        return offset

    def _activate(self, partition: Partition) -> None:
        self._loading = None
        self.state = ShardState.ACTIVE
        end_offset = partition.log.log_end_offset
        if not partition.acknowledges(end_offset, ACKS_ALL):
            turn = _Turn(self)
            turn.end_offset = end_offset
            self._uncommitted.append(turn)
            self._wait(partition, turn)
        self._event(lambda shard, now_ms: shard.loaded(now_ms))

    def _stand_still(self, partition: Partition, why: str) -> None:
        """Only a person can help: requests are turned away until the node is started anew."""
        self.state = ShardState.FAILED
        log.critical("groups of %s-%d stand still: %s", partition.topic, partition.index, why)

    def _retry_later(self) -> None:
        self.state = ShardState.FAILED
        self.shard = self._make_shard()
        self._retry = self._loop.call_later(RELOAD_PAUSE_S, self.load)

    # -- failure and the end -------------------------------------------------------------------

    def fail(self, why: str) -> None:
        """The shard's memory may be ahead of the log: give it up and replay."""
        if self.state is not ShardState.ACTIVE:
            return
        log.error("the group coordinator gives a shard up and replays it: %s", why)
        self._give_up(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._retry_later()

    def close(self) -> None:
        """The partition is no longer this node's, or the node stops."""
        if self._loading is not None:
            self._loading.cancel()
        if self._retry is not None:
            self._retry.cancel()
        self.write_turn()
        if self.state is ShardState.ACTIVE:
            try:
                self._give(self.shard.unload())
            except Exception:
                # The partitions have to follow the metadata whatever is wrong with the groups.
                log.exception("the group coordinator failed while a shard was closed")
        self._give_up(ErrorCode.NOT_COORDINATOR)
        self.state = ShardState.CLOSED

    def _give_up(self, code: ErrorCode) -> None:
        for timer in self._timers.values():
            timer.handle.cancel()
        self._timers.clear()
        self._staged = None
        for turn in self._uncommitted:
            if turn.timer is not None:
                turn.timer.cancel()
        self._uncommitted.clear()
        for token in list(self._waiting):
            self._refuse(token, code)

    def _refuse(self, token: int, code: ErrorCode) -> None:
        waiting = self._waiting.pop(token, None)
        if waiting is not None and not waiting.answer.done():
            waiting.answer.set_result(refuse(waiting.request, waiting.version, code))
