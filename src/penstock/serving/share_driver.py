"""One share-partition on the leader of its partition: it is loaded, changed, and its changes are
persisted.

The pure `SharePartition` decides; a driver reads its state from the persister, hands what it has
changed to the persister, and tells it when that is written. A change is answered when it is
written. One write is under way at a time: what changes meanwhile is one write after it.

Invariants: changes are written in the order in which they were made. One fetch holds a
share-partition from the choice of its offset until its records are acquired (`hold`). What has
failed to load, or was fenced, is never used again: the next request makes another.

`_FOLLOWS` has the states. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeAlias

from penstock.base.clock import Clock
from penstock.base.errors import ApiError, ErrorCode, invariant
from penstock.coordinating.share_persister import SharePersister
from penstock.observe.logs import Alarm
from penstock.partitions.partition import Partition
from penstock.share.partition import (
    AckBatch,
    Acquired,
    AcquireMode,
    Change,
    ShareLimits,
    SharePartition,
)
from penstock.share.types import UNINITIALIZED_START, ShareKey

log = logging.getLogger("penstock.serving")

OnDone: TypeAlias = Callable[[ApiError | None], None]
"""Called once, when a change is written, or with the error why it is not."""

MS_PER_S: Final = 1_000
_LEFT: Final = ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND, "the group has no session here")


class State(Enum):
    EMPTY = "empty"
    INITIALIZING = "initializing"
    ACTIVE = "active"
    FAILED = "failed"
    FENCED = "fenced"


_FOLLOWS: Final = {
    State.EMPTY: frozenset({State.INITIALIZING, State.FENCED}),
    State.INITIALIZING: frozenset({State.ACTIVE, State.FAILED, State.FENCED}),
    State.ACTIVE: frozenset({State.FENCED}),
    State.FAILED: frozenset[State](),
    State.FENCED: frozenset[State](),
}
FENCING: Final = frozenset(
    {
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    }
)
"""What the coordinator says of a state that is another one's by now, or that it does not have."""
_TO_CLIENTS: Final = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""What clients are told of the coordinator's errors, which are about the node's request to it."""


class DeadLettersOf(Protocol):
    """Writes the dead letters of one share-partition."""

    @property
    def is_busy(self) -> bool:
        """Whether something of them is under way."""

    def begin(self) -> None:
        """There are dead letters to be written."""

    def lost(self, records: int) -> None:
        """Retention has removed records before their dead letters were written."""

    def stop(self) -> None:
        """The share-partition is not to be used any more."""

    async def forget_marker(self) -> None:
        """Return when archived records may be revived; see `serving.dead_letters`."""


class Waiting(Protocol):
    """A fetch that waits for a share-partition."""

    def wake(self) -> None:
        """There may be something to acquire, or an error to tell."""


@dataclass(slots=True)
class ShareCounts:
    """What the share-partitions of a node have counted."""

    lock_timeouts: int = 0
    """Records whose lock ran out."""
    failed_writes: int = 0
    failed_loads: int = 0
    acknowledged: list[int] = field(default_factory=lambda: [0] * 5)
    """Records, by the type of their acknowledgement."""


@dataclass(slots=True)
class ShareEnvironment:
    """What all share-partitions of a node share."""

    persister: SharePersister
    clock: Clock
    limits: Callable[[ShareKey], ShareLimits]
    dead_letters: Callable[[ShareDriver], DeadLettersOf]
    begin_offset: Callable[[Partition, str], Awaitable[int]]
    """Where a group begins that has never consumed the partition."""
    counts: ShareCounts = field(default_factory=ShareCounts)
    failures: Alarm = field(default_factory=lambda: Alarm(log, level=logging.WARNING))

    def now_ms(self) -> int:
        return int(self.clock.monotonic() * MS_PER_S)


class _Begun(NamedTuple):
    """A change that is to be written, and who waits for it."""

    change: Change
    done: OnDone | None


class ShareDriver:
    __slots__ = (
        "_begun",
        "_dead_letters",
        "_env",
        "_held",
        "_loading",
        "_missed",
        "_on_gone",
        "_retires",
        "_timer",
        "_timer_ms",
        "_writing",
        "core",
        "error",
        "key",
        "leader_epoch",
        "partition",
        "record_bytes",
        "state",
        "waiting",
    )

    def __init__(
        self,
        env: ShareEnvironment,
        key: ShareKey,
        partition: Partition,
        on_gone: Callable[[ShareDriver], None],
    ) -> None:
        """`on_gone` is called when it is not to be used any more."""
        self._env = env
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state = State.EMPTY
        self.error: ApiError | None = None
        """Why it is not to be used any more."""
        self.core: SharePartition | None = None
        self.waiting: dict[Waiting, None] = {}
        """The fetches that wait here."""
        self.record_bytes = 0
        """How large a record was in the last read, 0 if that is not known."""
        self._missed: dict[Waiting, None] = {}
        self._held = False
        self._retires = False
        self._begun: list[_Begun] = []
        self._dead_letters: DeadLettersOf | None = None
        self._writing = False
        self._loading: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._on_gone = on_gone

    def __repr__(self) -> str:
        return f"<{self.key.group_id} in {self.partition!r}, {self.state.value}>"

    def _become(self, state: State) -> None:
        invariant(state in _FOLLOWS[self.state], f"{self!r} becomes {state.value}")
        self.state = state

    # -- loading and leaving -------------------------------------------------------------------

    def load(self) -> None:
        self._become(State.INITIALIZING)
        self._loading = asyncio.get_running_loop().create_task(self._load())

    async def _load(self) -> None:
        try:
            core = await self._loaded()
        except ApiError as e:
            self._not_loaded(e)
        except Exception:
            log.exception("%r cannot be loaded", self)
            self._not_loaded(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "its state is not usable"))
        else:
            if self.state is State.INITIALIZING:
                self.core = core
                self._become(State.ACTIVE)
                self._settle()
                self.wake()

    async def _loaded(self) -> SharePartition:
        group_id = self.key.group_id
        try:
            state = await self._env.persister.read(self.key, self.leader_epoch)
        except ApiError as e:
            raise for_clients(e.code, e.message) from e
        start = state.start_offset
        if start == UNINITIALIZED_START:
            start = await self._env.begin_offset(self.partition, group_id)
        return SharePartition(self._env.limits(self.key), state, start)

    def _not_loaded(self, error: ApiError) -> None:
        if self.state is State.INITIALIZING:
            self._env.counts.failed_loads += 1
            self._end(State.FAILED, error)

    def fence(self, error: ApiError) -> None:
        """It is not to be used any more. What is being written is answered as it ends."""
        if self.state in (State.FAILED, State.FENCED):
            return
        if self._loading is not None:
            self._loading.cancel()
        self._end(State.FENCED, error)

    def _end(self, state: State, error: ApiError) -> None:
        self._become(state)
        self.error = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._dead_letters is not None:
            self._dead_letters.stop()
        self._on_gone(self)
        begun, self._begun = self._begun, []
        for _, done in begun:
            if done is not None:
                done(error)
        self.wake()

    def led_again(self, leader_epoch: int) -> None:
        """The node leads on, in a new epoch."""
        self.leader_epoch = leader_epoch

    @property
    def is_active(self) -> bool:
        return self.state is State.ACTIVE

    def retire(self) -> None:
        """No member fetches here any more: leave when nothing is under way that the next one would
        have to know.
        """
        self._retires = True
        self.leave_if_idle()

    def serve_on(self) -> None:
        """A member fetches here again."""
        self._retires = False

    def leave_if_idle(self) -> None:
        writes = self._dead_letters is not None and self._dead_letters.is_busy
        if self._retires and not (self._writing or self._begun or self._held or writes):
            self.fence(_LEFT)

    @property
    def records_in_flight(self) -> int:
        """Records that members hold."""
        return 0 if self.core is None else self.core.held

    # -- waiting fetches -----------------------------------------------------------------------

    def wake(self) -> None:
        for waiting in list(self.waiting):
            waiting.wake()

    def hold(self, by: Waiting) -> bool:
        """Have it for one fetch alone; if another has it, `by` is woken when that lets go."""
        if self._held:
            self._missed[by] = None
            return False
        self._held = True
        return True

    def let_go(self) -> None:
        self._held = False
        missed, self._missed = self._missed, {}
        for waiting in missed:
            waiting.wake()
        self.leave_if_idle()

    # -- what members do -----------------------------------------------------------------------

    def may_acquire(self, member_id: str, members: int) -> bool:
        return (
            self.core is not None and self.is_active and self.core.may_acquire(member_id, members)
        )

    @property
    def fetch_offset(self) -> int:
        """Where to read for the next acquisition; retention may have moved the log's start."""
        core = self._active()
        log_start = self.partition.log.log_start_offset
        if log_start > core.start_offset:
            waiting = core.waiting_dead_letters
            self._begin(core.log_start_moved(log_start), None)
            if lost := waiting - core.waiting_dead_letters:
                self.dead_letters.lost(lost)
        return core.next_fetch_offset

    def acquire(
        self,
        member_id: str,
        batches: Sequence[tuple[int, int]],
        *,
        fetch_offset: int,
        max_records: int,
        batch_size: int,
        mode: AcquireMode,
        members: int,
    ) -> list[Acquired]:
        acquired, change = self._active().acquire(
            member_id,
            batches,
            fetch_offset=fetch_offset,
            max_records=max_records,
            batch_size=batch_size,
            mode=mode,
            members=members,
            now_ms=self._env.now_ms(),
        )
        self._begin(change, None)
        return acquired

    def archive(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Have records of aborted transactions never delivered."""
        self._begin(self._active().archive(ranges, self._env.now_ms()), None)

    def acknowledge(self, member_id: str, batches: Sequence[AckBatch], done: OnDone) -> None:
        try:
            if self.core is None or not self.is_active:
                raise self.error or ApiError(ErrorCode.INVALID_RECORD_STATE, "it is being loaded")
            change = self.core.acknowledge(member_id, batches, self._env.now_ms())
        except ApiError as e:
            done(e)
        else:
            self._begin(change, done)

    def revive(self, ranges: Sequence[tuple[int, int]], done: OnDone) -> None:
        """Have what is done of these records delivered anew, as far as the log has them."""
        try:
            if self.core is None or not self.is_active:
                raise self.error or ApiError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE, "it is being loaded"
                )
            change = self.core.revive(self.in_log(ranges))
        except ApiError as e:
            done(e)
        else:
            self._begin(change, done)

    def in_log(self, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """What of these offsets was not deleted by retention."""
        start = self.partition.log.log_start_offset
        return [(max(first, start), last) for first, last in ranges if last >= start]

    def release(self, member_id: str) -> None:
        """The member's session has ended: others may have what it held."""
        if self.core is not None and self.is_active:
            self._begin(self.core.release(member_id, self._env.now_ms()), None)
            self.wake()

    def take_limits(self) -> None:
        """The settings of the group may have changed."""
        if self.core is not None:
            self.core.limits = self._env.limits(self.key)
            self.wake()

    def _active(self) -> SharePartition:
        invariant(self.core is not None and self.is_active, f"{self!r} is used")
        assert self.core is not None
        return self.core

    # -- writing -------------------------------------------------------------------------------

    def _begin(self, change: Change | None, done: OnDone | None) -> None:
        """Have a change written; there is none if nothing of it has to be kept."""
        if change is not None:
            self._begun.append(_Begun(change, done))
            self._write()
        elif done is not None:
            done(None)
        self._settle()

    def _write(self) -> None:
        if self._writing or not self._begun or not self.is_active:
            return
        begun, self._begun = self._begun, []
        self._writing = True
        core = self._active()
        self._env.persister.write(
            self.key,
            core.state_epoch,
            self.leader_epoch,
            core.start_offset,
            core.delivery_complete_count,
            [batch for one in begun for batch in one.change.batches],
            lambda code, message: self._written(begun, code, message),
        )

    def _written(self, begun: list[_Begun], code: ErrorCode, message: str) -> None:
        self._writing = False
        error = None
        if code:
            error = for_clients(code, message)
            self._env.counts.failed_writes += 1
            self._env.failures.raised(
                self.key.group_id,
                "the state of a share-partition could not be written",
                share_partition=self.key.text,
                error=code.name,
            )
        if self.core is not None and self.is_active:
            self._finish(self.core, begun, failed=code != ErrorCode.NONE)
            if error is not None and code in FENCING:
                self.fence(error)
        for _, done in begun:
            if done is not None:
                done(error)
        if self.is_active:
            self._write()
            self._settle()
            self.wake()
            self.leave_if_idle()

    def _finish(self, core: SharePartition, begun: list[_Begun], *, failed: bool) -> None:
        now_ms = self._env.now_ms()
        for change, _ in begun:
            if not failed:
                core.written(change, now_ms)
            elif (instead := core.failed(change, now_ms)) is not None:
                self._begun.append(_Begun(instead, None))

    # -- dead letters --------------------------------------------------------------------------

    @property
    def dead_letters(self) -> DeadLettersOf:
        if self._dead_letters is None:
            self._dead_letters = self._env.dead_letters(self)
        return self._dead_letters

    def dead_letters_written(self, ranges: Sequence[tuple[int, int]]) -> Awaitable[None]:
        """Have these archived; `ApiError` if that could not be persisted."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: ApiError | None) -> None:
            if written.done():
                return  # who asked does not wait any more
            if error is None:
                written.set_result(None)
            else:
                written.set_exception(error)

        self._begin(self._active().dead_letters_written(ranges, self._env.now_ms()), done)
        return written

    # -- locks that run out --------------------------------------------------------------------

    def _settle(self) -> None:
        """Have the timer go off when the next lock runs out, at the latest; and have dead letters
        written.
        """
        core = self.core
        if core is None or not self.is_active:
            return
        if core.has_dead_letters:
            self.dead_letters.begin()
        deadline_ms = core.next_deadline_ms
        if deadline_ms is None:
            return
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_ms = max(deadline_ms - self._env.now_ms(), 0) + 1  # never a little too early
        self._timer = asyncio.get_running_loop().call_later(delay_ms / MS_PER_S, self._run_out)

    def _run_out(self) -> None:
        self._timer = None
        core = self._active()
        before = core.timed_out
        change = core.expire(self._env.now_ms())
        self._env.counts.lock_timeouts += core.timed_out - before
        self._begin(change, None)
        self.wake()


def for_clients(code: ErrorCode, message: str) -> ApiError:
    """What clients are told of an error of the coordinator."""
    return ApiError(_TO_CLIENTS.get(code, ErrorCode.UNKNOWN_SERVER_ERROR), message)
