"""Drives one shard of a coordinator: one partition of an internal topic.

The way of a request: the pure shard returns effects; their records are staged in the partition as
one batch; the answers wait until the high watermark has passed the batch, also those of requests
that only read, since they may depend on records that are not committed yet; so do the actions of
the shard. Timers are the loop's.

Records of a producer's transaction, and the marker that ends it, are checked against the log's
producer state before the shard sees them: what the log would refuse (a fenced producer) is answered
with the log's error and changes nothing.

A shard is loaded by replaying its partition, a part at a time, while requests are refused with
COORDINATOR_LOAD_IN_PROGRESS. When records cannot be appended or made durable, or the shard breaks
an invariant, its memory may be ahead of the log: all waiting requests fail, the shard is dropped
and the partition replayed.

When a batch is not committed in time (too few replicas are in sync), the requests that wait for it
fail and the shard stays: its records may yet be committed. While the partition is under its minimum
of replicas in sync, requests that are sure to write are refused.

Invariants: no answer is given and no action done before the records they depend on are committed;
after a failure nothing of the shard before it is used. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from penstock.base.clock import Clock
from penstock.base.errors import (
    ApiError,
    CorruptRecord,
    ErrorCode,
    PenstockError,
    StorageError,
    invariant,
)
from penstock.coordinating.shard_records import Placed, batch_of, replay
from penstock.coordinating.shard_timers import ShardTimers
from penstock.coordinator.effects import (
    Action,
    Caller,
    Effects,
    EndTxnMarker,
    ProducerIdentity,
    TimerKey,
)
from penstock.coordinator.shard_protocol import Participant, Shard
from penstock.log.producer_state import AppendOrigin
from penstock.partitions.leadership import Role
from penstock.partitions.partition import Partition
from penstock.partitions.waiting import ACKS_ALL
from penstock.wire.schema import Message

if TYPE_CHECKING:
    from penstock.log.log import Log

log = logging.getLogger("penstock.coordinating")

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


S = TypeVar("S", bound=Shard)
P = TypeVar("P", bound=Participant)


class ShardKind(NamedTuple):
    """What the shards of one coordinator have in common for their drivers."""

    name: str
    """The name of the coordinator in log messages."""
    refuse: Callable[[Message, int, ErrorCode], Message]
    """The answer to a request in a version that is refused as a whole."""
    sure_to_write: tuple[type[Message], ...]
    """Requests that are refused while nothing can be committed."""
    placed: Placed | None = None
    """Tells a shard the offsets of its records, if it has to know them."""


class _Waiting(NamedTuple):
    answer: asyncio.Future[Any]
    refused: Callable[[ErrorCode], Any]
    """The answer with an error code."""


class _Batch:
    """The answers and actions that wait for one batch of records to be committed."""

    __slots__ = ("_driver", "actions", "overdue_at", "replies")
    outlives_leadership = False

    def __init__(self, driver: ShardDriver[Any], overdue_at: float) -> None:
        self._driver = driver
        self.overdue_at = overdue_at
        self.replies: list[tuple[int, Any]] = []
        """Tokens of requests, and their answers."""
        self.actions: list[Action] = []

    def waits(self) -> None:
        self._driver.watch_commits()

    def appended(self) -> None:
        self._driver.committed(self)

    def failed(self, code: ErrorCode, message: str) -> None:
        self._driver.not_committed(self, f"{code.name}: {message}")


class ShardDriver(Generic[S]):
    def __init__(
        self,
        kind: ShardKind,
        partition: Callable[[], Partition],
        make_shard: Callable[[], S],
        clock: Clock,
        *,
        leader_epoch: int,
        commit_timeout_s: float,
        on_action: Callable[[Any], None] | None = None,
        on_given_up: Callable[[], None] | None = None,
    ) -> None:
        """`partition` gives the partition as it is led now, or raises ApiError; `leader_epoch` is
        the one that the shard belongs to. `on_action` carries out an action of the shard;
        `on_given_up` is called when the shard is dropped or closed: unfinished actions do not
        belong to it any more.
        """
        self.leader_epoch = leader_epoch
        self._kind = kind
        self._commit_timeout_s = commit_timeout_s
        self._on_action = on_action
        self._on_given_up = on_given_up
        self._find_partition = partition
        self._make_shard = make_shard
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.state = ShardState.LOADING
        self.shard = make_shard()
        self._partition: Partition | None = None
        self._loading: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._tokens = 0
        self._waiting: dict[int, _Waiting] = {}
        self._uncommitted: deque[_Batch] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._timers = ShardTimers(self._loop, self._timer_fired)

    # -- requests ------------------------------------------------------------------------------

    def submit(
        self,
        request: Message,
        version: int,
        client_id: str,
        client_host: str,
        producer: ProducerIdentity | None = None,
        handle: Callable[[S, Caller, int], Effects] | None = None,
    ) -> Message | Awaitable[Message]:
        """The answer, or a future of it; `producer` is the one in whose transaction the request
        writes. `handle` passes on what was prepared for the request.
        """
        code = self._unready(type(request))
        if code is None and producer is not None:
            code = self._refused_by_log(
                lambda log_: log_.producers.check_coordinator_append(*producer)
            )
        if code is not None:
            return self._kind.refuse(request, version, code)
        waiting = _Waiting(
            self._loop.create_future(), lambda code: self._kind.refuse(request, version, code)
        )
        token = self._expect(waiting)
        caller = Caller(token, version, client_id, client_host)
        if handle is not None:
            self._event(lambda shard, now_ms: handle(shard, caller, now_ms))
        else:
            self._event(lambda shard, now_ms: shard.handle(request, caller, now_ms))
        if waiting.answer.done():
            answer: Message = waiting.answer.result()
            return answer
        return waiting.answer

    def end_transaction(self: ShardDriver[P], marker: EndTxnMarker) -> Awaitable[ErrorCode]:
        """Write the marker that ends a transaction in this partition; done when it is committed."""
        waiting = _Waiting(self._loop.create_future(), lambda code: code)
        code = self._unready(EndTxnMarker)
        if code is None:
            code = self._refused_by_log(
                lambda log_: log_.producers.check_marker(
                    marker.producer_id,
                    marker.producer_epoch,
                    marker.coordinator_epoch,
                    marker.transaction_version,
                )
            )
        if code is not None:
            waiting.answer.set_result(code)
            return waiting.answer
        token = self._expect(waiting)

        def end(shard: P, now_ms: int) -> Effects:
            effects = shard.end_transaction(marker, now_ms)
            invariant(effects.marker == marker, f"{marker} was not appended to the log")
            return effects

        if self._event(end):
            self._after_commit([(token, ErrorCode.NONE)], [])
        return waiting.answer

    @property
    def unready(self) -> ErrorCode | None:
        """Why nothing can be asked of the shard now."""
        return None if self.state is ShardState.ACTIVE else _TURNED_AWAY[self.state]

    def _unready(self, kind: type) -> ErrorCode | None:
        """Why a request of this type cannot be accepted now."""
        if self.state is not ShardState.ACTIVE:
            return _TURNED_AWAY[self.state]
        assert self._partition is not None
        writes = kind is EndTxnMarker or issubclass(kind, self._kind.sure_to_write)
        if writes and self._partition.under_min_isr:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return None

    def _refused_by_log(self, check: Callable[[Log], None]) -> ErrorCode | None:
        assert self._partition is not None
        try:
            check(self._partition.log)
        except ApiError as e:
            return e.code
        return None

    def _expect(self, waiting: _Waiting) -> int:
        self._tokens += 1
        self._waiting[self._tokens] = waiting
        return self._tokens

    def event(self, happen: Callable[[S, int], Effects]) -> bool:
        """An event other than a request; whether it yielded records."""
        return self.state is ShardState.ACTIVE and self._event(happen)

    def _timer_fired(self, key: TimerKey, deadline_ms: int) -> None:
        # The wall clock may have been set back since: the shard must not think it too early.
        self.event(lambda shard, now_ms: shard.on_timer(key, max(now_ms, deadline_ms)))

    def _event(self, happen: Callable[[S, int], Effects]) -> bool:
        now_ms = self._clock.now_ms()
        try:
            effects = happen(self.shard, now_ms)
            self._perform(effects, now_ms)
        except (StorageError, ApiError) as e:
            self.fail(str(e))
        except Exception as e:
            log.exception("the %s failed and replays its partition", self._kind.name)
            self.fail(f"{type(e).__name__}: {e}")
        else:
            return effects.writes
        return False

    def _perform(self, effects: Effects, now_ms: int) -> None:
        if effects.writes:
            self._stage(effects, now_ms)
        for timer in effects.timers:
            self._timers.change(timer, now_ms)
        if effects.replies or effects.actions:
            self._after_commit(effects.replies, effects.actions)

    def _after_commit(self, replies: Sequence[tuple[int, Any]], actions: list[Action]) -> None:
        """Give the answers and do the actions when all that is staged is committed."""
        if not self._uncommitted:
            self._give(replies)
            self._do(actions)
        else:
            self._uncommitted[-1].replies += replies
            self._uncommitted[-1].actions += actions

    def _give(self, replies: Sequence[tuple[int, Any]]) -> None:
        for token, response in replies:
            waiting = self._waiting.pop(token, None)
            if waiting is not None and not waiting.answer.done():
                waiting.answer.set_result(response)

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            assert self._on_action is not None
            self._on_action(action)

    # -- appending -----------------------------------------------------------------------------

    def _stage(self, effects: Effects, now_ms: int) -> None:
        partition = self._partition
        assert partition is not None
        invariant(
            partition.role is Role.LEADER and partition.leader_epoch == self.leader_epoch,
            f"a shard of leader epoch {self.leader_epoch} writes to {partition!r}",
        )
        waiter = _Batch(self, self._loop.time() + self._commit_timeout_s)
        info = partition.stage(
            batch_of(effects, now_ms), now_ms, ACKS_ALL, waiter, AppendOrigin.COORDINATOR
        )
        self._uncommitted.append(waiter)
        if self._kind.placed is not None:
            first = info.last_offset + 1 - len(effects.records)
            for offset, record in enumerate(effects.records, first):
                self._kind.placed(self.shard, *record, offset)

    def committed(self, batch: _Batch) -> None:
        """The high watermark has passed `batch`."""
        if self._uncommitted and self._uncommitted[0] is batch:  # else it was given up
            self._uncommitted.popleft()
            self._give(batch.replies)
            self._do(batch.actions)

    def not_committed(self, batch: _Batch, why: str) -> None:
        """`batch` was not written, or will not be committed."""
        if batch in self._uncommitted:
            self.fail(why)

    def watch_commits(self) -> None:
        """A batch is written, and has to wait for other replicas or the disk."""
        if self._watch is None:
            self._watch = self._loop.call_later(self._commit_timeout_s, self._overdue)

    def _overdue(self) -> None:
        """Fail the requests that wait for batches which are still not committed."""
        self._watch = None
        now = self._loop.time()
        for batch in self._uncommitted:
            if batch.overdue_at > now:
                self._watch = self._loop.call_at(batch.overdue_at, self._overdue)
                return
            replies, batch.replies = batch.replies, []
            for token, _ in replies:
                self._refuse(token, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if self._uncommitted:
            self.watch_commits()

    # -- loading -------------------------------------------------------------------------------

    def load(self) -> None:
        """Replay the partition; in the background unless it is empty."""
        self.state = ShardState.LOADING
        self._retry = None
        try:
            partition = self._partition = self._find_partition()
            # A shard that failed may have left something staged: it belongs to the log now.
            partition.write_staged()
        except PenstockError as e:
            log.error("the %s cannot open its partition: %s", self._kind.name, e)
            self._retry_later()
            return
        if partition.log.health.for_good:
            # What is in the log will never be known to be durable, so no answer can depend on it.
            self._stop_serving(partition, partition.log.failure or "")
            return
        if partition.log.log_start_offset == partition.log.log_end_offset:
            self._activate(partition)
        else:
            self._loading = self._loop.create_task(self._replay(partition))

    async def _replay(self, partition: Partition) -> None:
        try:
            await replay(partition.log, self.shard, self._kind.placed)
            self._activate(partition)
        except CorruptRecord as e:
            # To continue without a record would lose its change.
            self._stop_serving(partition, str(e))
        except PenstockError as e:
            log.error("replay of %s-%d failed: %s", partition.topic, partition.index, e)
            self._retry_later()

    def _activate(self, partition: Partition) -> None:
        self._loading = None
        self.state = ShardState.ACTIVE
        end_offset = partition.log.log_end_offset
        if not partition.acknowledges(end_offset, ACKS_ALL):
            waiter = _Batch(self, self._loop.time() + self._commit_timeout_s)
            self._uncommitted.append(waiter)
            partition.wait_for(end_offset, ACKS_ALL, waiter)
            self.watch_commits()
        self._event(lambda shard, now_ms: shard.loaded(now_ms))

    def _stop_serving(self, partition: Partition, why: str) -> None:
        """Requests are refused until another broker leads, or until the node is restarted."""
        self.state = ShardState.FAILED
        name = f"{partition.topic}-{partition.index}"
        if partition.log.health.for_good and len(partition.registration.isr) > 1:
            log.error("the %s of %s waits for another leader: %s", self._kind.name, name, why)
        else:
            log.critical(
                "the %s of %s serves nothing until a restart: %s", self._kind.name, name, why
            )

    def _retry_later(self) -> None:
        self.state = ShardState.FAILED
        self.shard = self._make_shard()
        self._retry = self._loop.call_later(RELOAD_PAUSE_S, self.load)

    # -- failure and the end -------------------------------------------------------------------

    def fail(self, why: str) -> None:
        """The shard's memory may be ahead of the log: drop it and replay."""
        if self.state is not ShardState.ACTIVE:
            return
        log.error("the %s gives a shard up and replays it: %s", self._kind.name, why)
        self._give_up(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._retry_later()

    def close(self) -> None:
        """The partition is no longer this node's, or the node stops."""
        if self._loading is not None:
            self._loading.cancel()
        if self._retry is not None:
            self._retry.cancel()
        if self._partition is not None:
            self._partition.write_staged()
        if self.state is ShardState.ACTIVE:
            try:
                self._give(self.shard.unload())
            except Exception:
                # The partitions have to follow the metadata whatever is wrong with the shard.
                log.exception("the %s failed while a shard was closed", self._kind.name)
        self._give_up(ErrorCode.NOT_COORDINATOR)
        self.state = ShardState.CLOSED

    def _give_up(self, code: ErrorCode) -> None:
        self._timers.cancel_all()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._uncommitted.clear()
        for token in list(self._waiting):
            self._refuse(token, code)
        if self._on_given_up is not None:
            self._on_given_up()

    def _refuse(self, token: int, code: ErrorCode) -> None:
        waiting = self._waiting.pop(token, None)
        if waiting is not None and not waiting.answer.done():
            waiting.answer.set_result(waiting.refused(code))
