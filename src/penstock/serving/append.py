"""Publishing: the records of a request are checked, staged, written and acknowledged.

`append` takes a plain request and calls `done` once, with the result of each partition:
immediately, or when everything is written, and durable or committed as its acks ask.
Receiving the request and encoding the answer is the door's business.

The requests of one source are staged in the order of its calls. One that cannot be staged yet (its
transaction has to be verified, or a large batch to be unpacked) holds its source: it makes no
further call until it is released.

Invariant: nothing is acknowledged before it is written, and durable or committed as its acks ask.
Limits: `UNPACKERS` batches are unpacked at a time; a stop waits `UNDECIDED_S_MAX` for other
replicas. Owned by the event loop's thread; only
`BatchRules.unpacked` is called in a worker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic_ns
from typing import Final, Protocol, TypeAlias

from penstock.auth.principal import Principal
from penstock.auth.types import Operation
from penstock.auth.usage import Usage
from penstock.base.clock import Clock
from penstock.base.errors import ApiError, ErrorCode, InvariantBroken, StorageError
from penstock.base.ids import TopicKey
from penstock.base.results import PartitionAnswer, TopicAnswers, appended
from penstock.coordinating.transaction_verification import SupportedOperation
from penstock.log.log import AppendInfo, Batch
from penstock.log.verification import NOT_ASKED
from penstock.observe.logs import Alarm
from penstock.partitions.batch_validation import BatchRules, RecordsRefused, UncheckedBatch
from penstock.partitions.partition import Partition
from penstock.partitions.replica_manager import ReplicaManager
from penstock.partitions.turns import Turns
from penstock.partitions.waiting import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from penstock.serving.append_verification import AppendTransaction, AppendVerification
from penstock.serving.leader_hints import LeaderHints
from penstock.serving.rights import Rights

__all__ = ["AppendRequest", "AppendResult", "AppendService", "Source", "SupportedOperation"]

log = logging.getLogger("penstock.serving")

_ACKS: Final = (ACKS_ALL, ACKS_LEADER, ACKS_NONE)
_WRITE: Final = Operation.WRITE
# With these, if it is the log that refuses a batch, Kafka says where the log begins.
_REFUSED_BY_LOG: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
ERROR_MESSAGE_CHARS_MAX: Final = 1_000
UNPACKERS: Final = 2
UNDECIDED_S_MAX: Final = 1.0
"""How long a node that stops waits for other replicas: by default they fetch twice in that time."""
AUDIT_OF_NODE: Final = "__audit of node "
"""How the transactional id of a node's own request for the audit log begins."""

_NO_ANSWER: Final = PartitionAnswer(-1, ErrorCode.UNKNOWN_SERVER_ERROR)
_NOT_UNPACKED: Final = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the batch could not be unpacked")

TopicRecords: TypeAlias = list[tuple[TopicKey, list[tuple[int, memoryview | None]]]]


class Source(Protocol):
    """Where requests come from in order, such as a connection."""

    def hold(self, size: int) -> None:
        """The last request is not staged yet, and its `size` bytes stay in memory: no further
        request may be made until `release`.
        """

    def release(self) -> None:
        """The held request is staged, or refused."""


class AppendRequest:
    """Records for partitions, each as one batch in Kafka's format.

    The service owns it: it clears `topics` when all is staged, since the records lie in a buffer
    that the door uses again.
    """

    __slots__ = (
        "acks",
        "operation",
        "principal",
        "source",
        "timeout_ms",
        "topics",
        "transactional_id",
        "usage",
        "zstd",
    )

    def __init__(
        self,
        principal: Principal,
        source: Source,
        acks: int,
        timeout_ms: int,
        topics: TopicRecords,
        usage: Usage | None,
        transactional_id: str | None = None,
        operation: SupportedOperation = SupportedOperation.ADD_PARTITION,
        zstd: bool = True,
    ) -> None:
        """`usage`: None where no quotas apply; `operation`: what a transactional client expects of
        the broker (KIP-890); `zstd`: whether its version of the protocol allows that compression.
        """
        self.principal = principal
        self.source = source
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics
        self.usage = usage
        self.transactional_id = transactional_id
        self.operation = operation
        self.zstd = zstd


class AppendResult:
    """The result of a request."""

    __slots__ = ("failed", "leaders", "throttle_ms", "topics", "waits_since_ns")

    def __init__(self) -> None:
        self.topics: TopicAnswers = []
        """In the order of the request."""
        self.failed = False
        """Whether a partition has an error."""
        self.leaders: set[int] | None = None
        """The brokers that lead the partitions that have moved."""
        self.waits_since_ns = 0
        """When the request began to wait for replicas or the disk; 0 if it did not."""
        self.throttle_ms = 0
        """How long the client has to wait before its next request."""


class AppendInFlight(AppendResult):
    """A request between its arrival and its result."""

    __slots__ = (
        "_done",
        "_hints",
        "_timer",
        "held",
        "left",
        "parts",
        "refusal",
        "request",
        "transaction",
    )

    def __init__(
        self, request: AppendRequest, done: Callable[[AppendResult], None], hints: LeaderHints
    ) -> None:
        # The base's own constructor is a call that every request would pay for.
        self.topics = []
        self.failed = False
        self.leaders = None
        self.waits_since_ns = 0
        self.throttle_ms = 0
        self.request = request
        self._done: Callable[[AppendResult], None] | None = done
        self._hints = hints
        self.parts: list[_Part] = []
        """Those whose batches are staged."""
        self._timer: asyncio.TimerHandle | None = None
        self.held = False
        """Its source hands in nothing more."""
        self.left = 1
        """Partitions that are not done, and one for the staging itself."""
        self.transaction: AppendTransaction | None = None  # where there is a transactional id
        self.refusal: ApiError | None = None  # of the request as a whole

    def moved(self, topic: TopicKey, answer: PartitionAnswer) -> PartitionAnswer:
        """`answer`, with the partition's new leader if its error means that there is one."""
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
            self.finish()

    def waits(self) -> None:
        """A partition has to wait for its acknowledgement."""
        if self._timer is None:
            self.held_up()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.request.timeout_ms / 1000, self._timed_out)

    def hold(self) -> None:
        """Not all of the request can be staged yet: its source has to wait."""
        self.held_up()
        if not self.held:
            self.held = True
            topics = self.request.topics
            size = sum(len(records or b"") for _, partitions in topics for _, records in partitions)
            self.request.source.hold(size)

    def release(self) -> None:
        """All is staged, or refused."""
        self.request.topics = []
        if self.held:
            self.held = False
            self.request.source.release()

    def held_up(self) -> None:
        if not self.waits_since_ns:
            self.waits_since_ns = monotonic_ns()

    def _timed_out(self) -> None:
        for part in self.parts:
            part.timed_out()
        self.finish()

    def finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        done, self._done = self._done, None
        self.parts.clear()  # no request may lie in a cycle
        usage = self.request.usage
        if done is None:
            pass
        elif usage is None:
            done(self)
        else:
            self.throttle_ms = usage.produced(acks=self.request.acks != ACKS_NONE)
            usage.timed(done, self)


class _Part:
    """The records for one partition: its answer, and the wait for its acknowledgement there."""

    __slots__ = (
        "_partition",
        "answers",
        "append",
        "done",
        "index",
        "place",
        "records",
        "topic",
    )
    # To say that another broker leads would tell the producer that nothing was written.
    outlives_leadership = True

    def __init__(
        self,
        append: AppendInFlight,
        answers: list[PartitionAnswer],
        topic: TopicKey,
        index: int,
        records: memoryview | None,
    ) -> None:
        self.append = append
        self.answers = answers
        self.place = len(answers)
        """Where the answer stands."""
        self.topic = topic
        self.index = index
        self.records = records
        """Until they are staged."""
        self._partition: Partition | None = None
        self.done = False
        answers.append(_NO_ANSWER)

    def staged(self, partition: Partition, info: AppendInfo) -> None:
        """The partition has taken the batch; the answer holds unless it fails."""
        self._partition = partition
        self.records = None
        first_offset, _, log_append_time, log_start_offset, _, _ = info
        self.answers[self.place] = appended(
            self.index, first_offset, log_append_time, log_start_offset
        )
        append = self.append
        append.parts.append(self)
        append.left += 1

    def refused(self, error: ApiError, partition: Partition | None) -> None:
        answer = self.append.moved(self.topic, _error(self.index, error, partition))
        self.answers[self.place] = answer
        if partition is not None:
            partition.counters.failed_produce_requests += 1
            partition.counters.bytes_rejected += len(self.records or b"")

    def waits(self) -> None:
        self.append.waits()

    def appended(self) -> None:
        if not self.done:
            self.done = True
            append = self.append
            append.left -= 1  # as `one_done`, without the call
            if not append.left:
                append.finish()

    def failed(self, code: ErrorCode, message: str) -> None:
        if self.done:
            return
        self.done = True
        if self._partition is not None:
            self._partition.counters.failed_produce_requests += 1
        answer = PartitionAnswer(self.index, code, error_message=message)
        self.answers[self.place] = self.append.moved(self.topic, answer)
        self.append.one_done()

    def timed_out(self) -> None:
        if not self.done:
            self.done = self.append.failed = True
            answer = PartitionAnswer(self.index, ErrorCode.REQUEST_TIMED_OUT)
            self.answers[self.place] = answer


class _Unpacking:
    """A batch that a worker unpacks, and what it found."""

    __slots__ = ("_batch", "_rules", "found", "part")

    def __init__(self, part: _Part, rules: BatchRules, batch: UncheckedBatch) -> None:
        self.part = part
        self._rules = rules
        self._batch = batch
        self.found: Batch | ApiError = _NOT_UNPACKED

    def run(self, now_ms: int) -> None:
        """In the worker."""
        try:
            self.found = self._rules.unpacked(self._batch, now_ms)
        except ApiError as e:
            self.found = e
        except Exception:
            log.exception("a batch could not be unpacked")


def _unpack_all(work: list[_Unpacking], now_ms: int) -> None:
    """In the worker."""
    for one in work:
        one.run(now_ms)


class AppendService:
    def __init__(
        self,
        replicas: ReplicaManager,
        turns: Turns,
        hints: LeaderHints,
        clock: Clock,
        verification: AppendVerification,
        rights: Rights,
    ) -> None:
        self._rights = rights
        self._replicas = replicas
        self._turns = turns
        self._hints = hints
        self._clock = clock
        self._verification = verification
        self._loop = asyncio.get_running_loop()
        self._unpackers = ThreadPoolExecutor(UNPACKERS, thread_name_prefix="unpack")
        self._unpacks: set[asyncio.Future[None]] = set()
        self._alarm = Alarm(log)
        self._giving_up: asyncio.TimerHandle | None = None
        self.failures = 0
        """Writes of staged batches that the disk has refused."""
        self.take_from_node: Callable[[AppendRequest, Callable[[AppendResult], None]], None]
        """Takes what another node sends for the audit log."""

    def append(self, request: AppendRequest, done: Callable[[AppendResult], None]) -> None:
        """Have `done` called with what becomes of the request."""
        append = AppendInFlight(request, done, self._hints)
        if request.acks not in _ACKS:
            append.refusal = _invalid_acks(request.acks)
        elif request.transactional_id is not None:
            if request.transactional_id.startswith(AUDIT_OF_NODE):
                self.take_from_node(request, done)
                return
            if not self._rights.transactional_id(
                request.principal, _WRITE, request.transactional_id
            ):
                append.refusal = ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            elif self._verification.begin(append, self._stage):
                return
        self._stage(append)

    def _stage(self, append: AppendInFlight) -> None:
        """Stage what can be staged now; what has to be unpacked by a worker follows."""
        request, refusal = append.request, append.refusal
        unpacking: list[_Unpacking] = []
        turns = self._turns
        turns.begin(request.source)
        try:
            now_ms = self._clock.now_ms()
            for topic, partitions in request.topics:
                answers: list[PartitionAnswer] = []
                append.topics.append((topic, answers))
                for index, records in partitions:
                    part = _Part(append, answers, topic, index, records)
                    if refusal is not None:
                        part.refused(refusal, None)
                    else:
                        self._check(part, now_ms, unpacking)
        finally:
            if unpacking:
                self._unpack(append, unpacking, now_ms)
            elif append.held:
                append.release()
            else:
                request.topics = []
            append.left -= 1  # as `one_done`, without the call
            if not append.left:
                append.finish()
            turns.end()  # last: it answers this request before the reads that it wakes

    def _check(self, part: _Part, now_ms: int, unpacking: list[_Unpacking]) -> None:
        """Stage a batch, or have it unpacked before."""
        partition: Partition | None = None
        append = part.append
        request, transaction = append.request, append.transaction
        try:
            if self._rights.active:
                self._rights.require_topic(request.principal, _WRITE, part.topic)
            if transaction is not None and transaction.errors:
                transaction.check(part.topic, part.index)
            partition = self._replicas.leader_of(part.topic, part.index)
            partition.counters.produce_requests += 1
            rules = partition.rules
            batch = rules.accepted(part.records, now_ms, transaction is not None, request.zstd)
            if isinstance(batch, UncheckedBatch):
                unchecked = batch
                quick = rules.unpacked_on_loop(unchecked, now_ms)
                if quick is None:
                    append.left += 1
                    unpacking.append(_Unpacking(part, rules, unchecked))
                    return
                batch = quick
        except ApiError as e:
            part.refused(e, partition)
        else:
            self._stage_batch(part, partition, batch, now_ms)

    def _stage_batch(self, part: _Part, partition: Partition, batch: Batch, now_ms: int) -> None:
        append = part.append
        acks, transaction = append.request.acks, append.transaction
        try:
            guard = (
                NOT_ASKED if transaction is None else transaction.guard_for(part.topic, partition)
            )
            if partition.under_min_isr and acks == ACKS_ALL:
                raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
            info = partition.stage(batch, now_ms, acks, part, guard=guard)
        except ApiError as e:
            part.refused(e, partition)
            return
        except (StorageError, InvariantBroken) as failure:
            if isinstance(failure, InvariantBroken):
                partition.stop(str(failure))
            part.refused(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)), partition)
            return
        part.staged(partition, info)
        if not info.duplicate:
            counters = partition.counters
            counters.messages_in += batch.header.record_count
            counters.bytes_in += len(batch.data)

    # -- what a worker unpacks -----------------------------------------------------------------

    def _unpack(self, append: AppendInFlight, work: list[_Unpacking], now_ms: int) -> None:
        append.hold()
        unpack = self._loop.run_in_executor(self._unpackers, _unpack_all, work, now_ms)
        self._unpacks.add(unpack)
        unpack.add_done_callback(lambda _: self._unpacked(append, work, now_ms, unpack))

    def _unpacked(
        self,
        append: AppendInFlight,
        work: list[_Unpacking],
        now_ms: int,
        unpack: asyncio.Future[None],
    ) -> None:
        self._unpacks.discard(unpack)
        self._turns.begin(append.request.source)
        try:
            for one in work:
                self._stage_unpacked(one, now_ms)
        finally:
            append.release()
            for _ in work:
                append.one_done()
            self._turns.end()

    def _stage_unpacked(self, one: _Unpacking, now_ms: int) -> None:
        part, found = one.part, one.found
        partition: Partition | None = None
        try:
            # The partition may have moved meanwhile.
            partition = self._replicas.leader_of(part.topic, part.index)
            if isinstance(found, ApiError):
                raise found
        except ApiError as e:
            part.refused(e, partition)
        else:
            self._stage_batch(part, partition, found, now_ms)

    def write_failed(self, partition: Partition, error: StorageError) -> None:
        """The disk has refused what was staged for a partition."""
        self.failures += 1
        name = f"{partition.topic}-{partition.index}"
        self._alarm.raised(name, f"append to {name} refused: {error}", partition=name)

    def end_waiting(self) -> None:
        """The node stops. What the other replicas decide soon is answered as ever; what they do not
        is given up, and its producers ask the next leader.
        """
        self._giving_up = self._loop.call_later(UNDECIDED_S_MAX, self._give_up_commits)

    def _give_up_commits(self) -> None:
        for partition in list(self._replicas.open_partitions()):
            partition.give_up_commits()

    async def stop(self) -> None:
        """Give up what still waits to be verified, and write what is staged or being unpacked."""
        if self._giving_up is not None:
            self._giving_up.cancel()
        await self._verification.stop()
        while self._unpacks:
            await asyncio.wait(self._unpacks)  # it returns after their callbacks
        self._unpackers.shutdown()
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
