"""Publishing: the records of a request are checked, staged, written and acknowledged.

`append` takes a plain request and calls `done` once, with what became of each partition; at once,
or when everything is written, and durable or committed as its acks ask. How the request came in and
how it is answered is the door's business.

The requests of one source are staged in the order in which they are handed in. One that cannot be
staged yet (its transaction has to be verified) holds its source: it hands in nothing more until it
is released.

Invariant: nothing is acknowledged before it is written, and durable or committed as its acks ask.
Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic_ns
from typing import Protocol, TypeAlias

from penstock.base.clock import Clock
from penstock.base.errors import ApiError, ErrorCode, InvariantBroken, StorageError
from penstock.base.ids import TopicKey
from penstock.base.results import PartitionAnswer, TopicAnswers, appended
from penstock.coordinating.transaction_verification import SupportedOperation
from penstock.log.verification import NOT_ASKED
from penstock.observe.logs import Alarm
from penstock.partitions.batch_validation import RecordsRefused
from penstock.partitions.partition import Partition
from penstock.partitions.replica_manager import ReplicaManager
from penstock.partitions.turns import Turns
from penstock.partitions.waiting import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from penstock.serving.append_verification import AppendTransaction, AppendVerification
from penstock.serving.leader_hints import LeaderHints

log = logging.getLogger("penstock.serving")

_ACKS = (ACKS_ALL, ACKS_LEADER, ACKS_NONE)
# With these, if it is the log that refuses a batch, Kafka says where the log begins.
_REFUSED_BY_LOG = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
ERROR_MESSAGE_CHARS_MAX = 1_000

TopicRecords: TypeAlias = list[tuple[TopicKey, list[tuple[int, memoryview | None]]]]


class Source(Protocol):
    """Where requests come from, one after the other."""

    def hold(self, size: int) -> None:
        """The last request is not staged yet, and its `size` bytes stay in memory: nothing else may
        be handed in until `release`.
        """

    def release(self) -> None:
        """It is."""


class AppendRequest:
    """Records for partitions, each as one batch in Kafka's format. Not changed once it is made."""

    __slots__ = (
        "acks",
        "operation",
        "principal",
        "source",
        "timeout_ms",
        "topics",
        "transactional_id",
        "zstd",
    )

    def __init__(
        self,
        principal: str,
        source: Source,
        acks: int,
        timeout_ms: int,
        topics: TopicRecords,
        transactional_id: str | None = None,
        operation: SupportedOperation = SupportedOperation.ADD_PARTITION,
        zstd: bool = True,
    ) -> None:
        """`operation` is what the client of a transaction leaves to us; `zstd`: whether it may send
        batches that are compressed by it.
        """
        self.principal = principal
        self.source = source
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics
        self.transactional_id = transactional_id
        self.operation = operation
        self.zstd = zstd


class AppendResult:
    """What became of a request."""

    __slots__ = ("failed", "leaders", "topics", "waits_since_ns")

    def __init__(self) -> None:
        self.topics: TopicAnswers = []
        """In the order of the request."""
        self.failed = False
        """Whether a partition has an error."""
        self.leaders: set[int] | None = None
        """The brokers that lead partitions which were refused since they have moved."""
        self.waits_since_ns = 0
        """When the request began to wait for others; 0 if it did not."""


class AppendInFlight(AppendResult):
    """A request between its arrival and its result."""

    __slots__ = ("_done", "_hints", "_parts", "_timer", "left", "refusal", "request", "transaction")

    def __init__(
        self, request: AppendRequest, done: Callable[[AppendResult], None], hints: LeaderHints
    ) -> None:
        super().__init__()
        self.request = request
        self._done: Callable[[AppendResult], None] | None = done
        self._hints = hints
        self._parts: list[_Part] = []
        self._timer: asyncio.TimerHandle | None = None
        self.left = 1
        """Partitions that are not done, and one for the staging itself."""
        self.transaction: AppendTransaction | None = None  # where there is a transactional id
        self.refusal: ApiError | None = None  # of the request as a whole

    def waits_for(self, part: _Part) -> None:
        """A partition has staged its batch."""
        self._parts.append(part)
        self.left += 1

    def moved(self, topic: TopicKey, answer: PartitionAnswer) -> PartitionAnswer:
        """`answer`, with the partition's new leader if it is an error that means one."""
        self.failed = True
        leader = self._hints.leader(answer.error_code, topic, answer.partition)
        if leader is None:
            return answer
        if self.leaders is None:
            self.leaders = set()
        self.leaders.add(leader[0])
        return answer._replace(leader_id=leader[0], leader_epoch=leader[1])

    def one_done(self) -> None:
        self.left -= 1
        if not self.left:
            self._finish()

    def waits(self) -> None:
        """A partition has to wait for its acknowledgement."""
        if self._timer is None:
            self.held_up()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.request.timeout_ms / 1000, self._timed_out)

    def held_up(self) -> None:
        if not self.waits_since_ns:
            self.waits_since_ns = monotonic_ns()

    def _timed_out(self) -> None:
        for part in self._parts:
            if not part.done:
                part.done = self.failed = True
                index = part.answers[part.place].partition
                part.answers[part.place] = PartitionAnswer(index, ErrorCode.REQUEST_TIMED_OUT)
        self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        done, self._done = self._done, None
        self._parts.clear()  # no request may lie in a cycle
        if done is not None:
            done(self)


class _Part:
    """The batch of one partition, which waits for its acknowledgement there."""

    __slots__ = ("_append", "_partition", "answers", "done", "place")
    # To say that another broker leads would tell the producer that nothing was written.
    outlives_leadership = True

    def __init__(
        self, append: AppendInFlight, partition: Partition, answers: list[PartitionAnswer]
    ) -> None:
        self._append = append
        self._partition = partition
        self.answers = answers
        self.place = len(answers)
        """Where the partition's answer stands."""
        self.done = False

    def waits(self) -> None:
        self._append.waits()

    def appended(self) -> None:
        if not self.done:
            self.done = True
            self._append.one_done()

    def failed(self, code: ErrorCode, message: str) -> None:
        if self.done:
            return
        self.done = True
        partition = self._partition
        partition.counters.failed_produce_requests += 1
        answer = PartitionAnswer(partition.index, code, error_message=message)
        self.answers[self.place] = self._append.moved(partition.topic, answer)
        self._append.one_done()


class AppendService:
    def __init__(
        self,
        replicas: ReplicaManager,
        turns: Turns,
        hints: LeaderHints,
        clock: Clock,
        verification: AppendVerification,
    ) -> None:
        self._replicas = replicas
        self._turns = turns
        self._hints = hints
        self._clock = clock
        self._verification = verification
        self._alarm = Alarm(log)
        self.failures = 0
        """Writes of staged batches that the disk has refused."""

    def append(self, request: AppendRequest, done: Callable[[AppendResult], None]) -> None:
        """Have `done` called with what becomes of the request."""
        append = AppendInFlight(request, done, self._hints)
        if request.acks not in _ACKS:
            append.refusal = _invalid_acks(request.acks)
        elif request.transactional_id is not None and self._verification.begin(append, self._stage):
            append.held_up()
            return
        self._stage(append)

    def _stage(self, append: AppendInFlight) -> None:
        request, refusal = append.request, append.refusal
        turns = self._turns
        turns.begin(request.source)
        try:
            now_ms = self._clock.now_ms()
            for topic, partitions in request.topics:
                answers: list[PartitionAnswer] = []
                append.topics.append((topic, answers))
                for index, records in partitions:
                    if refusal is not None:
                        self._refuse(append, answers, topic, index, refusal, None, records)
                    else:
                        self._stage_one(append, answers, topic, index, records, now_ms)
        finally:
            turns.end()
            append.one_done()

    def _stage_one(
        self,
        append: AppendInFlight,
        answers: list[PartitionAnswer],
        topic: TopicKey,
        index: int,
        records: memoryview | None,
        now_ms: int,
    ) -> None:
        partition: Partition | None = None
        request, transaction = append.request, append.transaction
        try:
            if transaction is not None and transaction.errors:
                transaction.check(topic, index)
            partition = self._replicas.leader_of(topic, index)
            partition.counters.produce_requests += 1
            batch = partition.rules.checked(
                records, 13 if request.zstd else 3, now_ms, transaction is not None
            )
            guard = NOT_ASKED if transaction is None else transaction.guard_for(topic, partition)
            acks = request.acks
            if partition.under_min_isr and acks == ACKS_ALL:
                raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
            part = _Part(append, partition, answers)
            info = partition.stage(batch, now_ms, acks, part, guard=guard)
        except ApiError as e:
            self._refuse(append, answers, topic, index, e, partition, records)
            return
        except (StorageError, InvariantBroken) as failure:
            if partition is not None and isinstance(failure, InvariantBroken):
                partition.stop(str(failure))
            error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
            self._refuse(append, answers, topic, index, error, partition, records)
            return
        append.waits_for(part)
        answers.append(
            appended(index, info.first_offset, info.log_append_time, info.log_start_offset)
        )
        if not info.duplicate:
            counters = partition.counters
            counters.messages_in += batch.header.record_count
            counters.bytes_in += len(batch.data)

    def _refuse(
        self,
        append: AppendInFlight,
        answers: list[PartitionAnswer],
        topic: TopicKey,
        index: int,
        error: ApiError,
        partition: Partition | None,
        records: memoryview | None,
    ) -> None:
        answers.append(append.moved(topic, _error(index, error, partition)))
        if partition is not None:
            partition.counters.failed_produce_requests += 1
            partition.counters.bytes_rejected += len(records or b"")

    def write_failed(self, partition: Partition, error: StorageError) -> None:
        """The disk has refused what was staged for a partition."""
        self.failures += 1
        name = f"{partition.topic}-{partition.index}"
        self._alarm.raised(name, f"append to {name} refused: {error}", partition=name)

    async def stop(self) -> None:
        """Give up what still waits to be verified, and write what is staged."""
        await self._verification.stop()
        self._turns.stop()


def _invalid_acks(acks: int) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; use 0, 1 or -1 (all)")


def _error(index: int, error: ApiError, partition: Partition | None) -> PartitionAnswer:
    return PartitionAnswer(
        index,
        error.code,
        log_start_offset=partition.log.log_start_offset
        if partition is not None and error.code in _REFUSED_BY_LOG
        else -1,
        error_message=error.message[:ERROR_MESSAGE_CHARS_MAX] or None,
        record_errors=error.indexes if isinstance(error, RecordsRefused) else (),
    )
