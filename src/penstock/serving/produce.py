"""The way of a Produce request below its codec: validate, stage, write, acknowledge.

Requests stage their batches here; `ProduceTurns` writes what many of them have staged together.

Invariant: nothing is acknowledged before it is written, and durable or committed as its acks ask.
Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from penstock.base.clock import Clock
from penstock.base.errors import ApiError, ErrorCode, StorageError
from penstock.log.verification import NOT_ASKED
from penstock.net.connection import Exchange
from penstock.observe.logs import Alarm
from penstock.partitions.batch_validation import RecordsRefused
from penstock.partitions.partition import Partition
from penstock.partitions.produce_turns import ProduceTurns
from penstock.partitions.replica_manager import ReplicaManager
from penstock.serving.leader_hints import LeaderHints
from penstock.serving.produce_verification import ProduceTransaction, ProduceVerification
from penstock.wire.apis import ApiKey
from penstock.wire.produce_codec import (
    PartitionAnswer,
    ProduceBody,
    TopicAnswers,
    TopicKey,
    appended,
    encode_produce_response,
)

log = logging.getLogger("penstock.serving")

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
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


class ProduceInFlight:
    """One Produce request between its arrival and its answer."""

    __slots__ = (
        "_hints",
        "_timer",
        "_unacknowledged",
        "acks",
        "answers",
        "exchange",
        "leaders",
        "refusal",
        "staged",
        "timeout_ms",
        "transaction",
    )
    outlives_leadership = True

    def __init__(self, exchange: Exchange, acks: int, timeout_ms: int, hints: LeaderHints) -> None:
        self.exchange = exchange
        self._hints = hints
        self.leaders: set[int] | None = None  # of partitions that were refused since they moved
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.transaction: ProduceTransaction | None = None  # where there is a transactional id
        self.refusal: ApiError | None = None  # of the request as a whole
        self.answers: TopicAnswers = []
        # Where each staged partition's answer stands, and the offset that must be reached for it.
        self.staged: list[tuple[Partition, list[PartitionAnswer], int, int]] = []
        self._unacknowledged = 0
        self._timer: asyncio.TimerHandle | None = None

    def partition_failed(self, partition: Partition, code: ErrorCode, message: str) -> None:
        """Turn the answer of a staged partition into an error; it is no longer waited for."""
        for staged, answers, place, _ in self.staged:
            if staged is partition:
                answers[place] = self.moved(
                    partition.topic,
                    PartitionAnswer(partition.index, code, error_message=message),
                )
                partition.counters.failed_produce_requests += 1
        if self._unacknowledged:
            self.partition_done()

    def moved(self, topic: TopicKey, answer: PartitionAnswer) -> PartitionAnswer:
        """`answer`, with the partition's new leader if it is an error that means one."""
        leader = self._hints.leader(answer.error_code, topic, answer.partition)
        if leader is None:
            return answer
        if self.leaders is None:
            self.leaders = set()
        self.leaders.add(leader[0])
        return answer._replace(leader_id=leader[0], leader_epoch=leader[1])

    def partition_done(self) -> None:
        self._unacknowledged -= 1
        if not self._unacknowledged:
            self.answer()

    def acknowledge(self, loop: asyncio.AbstractEventLoop) -> None:
        """Everything is written: answer now, or when the acknowledgement asked for is reached."""
        acks = self.acks
        for partition, _, _, end in self.staged:
            if end > (partition.high_watermark if acks == ACKS_ALL else partition.durable_offset):
                self._wait(loop)
                return
        self.answer()

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting = [
            (partition, end)
            for partition, answers, place, end in self.staged
            if not answers[place].error_code and not partition.acknowledges(end, self.acks)
        ]
        if not waiting or self.acks == ACKS_NONE:
            self.answer()
            return
        self._unacknowledged = len(waiting)
        self.exchange.park()
        self._timer = loop.call_later(self.timeout_ms / 1000, self._timed_out)
        for partition, end in waiting:
            partition.wait_for(end, self.acks, self)

    def _timed_out(self) -> None:
        for partition, answers, place, end in self.staged:
            if not answers[place].error_code and not partition.acknowledges(end, self.acks):
                answers[place] = PartitionAnswer(partition.index, ErrorCode.REQUEST_TIMED_OUT)
        self.answer()

    def answer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        exchange = self.exchange
        if self.acks != ACKS_NONE:
            if self.leaders is None:
                frame = encode_produce_response(
                    exchange.correlation_id, exchange.version, self.answers
                )
            else:
                endpoints = self._hints.endpoints(self.leaders, exchange.connection.listener)
                frame = encode_produce_response(
                    exchange.correlation_id, exchange.version, self.answers, endpoints
                )
            exchange.finish(frame)
            return
        if any(answer.error_code for _, answers in self.answers for answer in answers):
            # A producer without acknowledgements can only be told by a closed connection.
            exchange.connection.refuse("a Produce request with acks=0 failed")
        exchange.finish(None)


class Producer:
    """The node's produce path: takes decoded requests, gives answers."""

    def __init__(
        self,
        replicas: ReplicaManager,
        hints: LeaderHints,
        clock: Clock,
        run_woken: Callable[[], None],
        count_error: Callable[[int, int], None],
        verification: ProduceVerification,
    ) -> None:
        """`run_woken` answers the fetches that an append made answerable."""
        self._verification = verification
        self._count_error = count_error
        self._replicas = replicas
        self._hints = hints
        self._clock = clock
        self._turns = ProduceTurns(run_woken, self._note_failure)
        self._alarm = Alarm(log)
        self.append_failures = 0

    def handle(self, exchange: Exchange, body: ProduceBody) -> None:
        produce = ProduceInFlight(exchange, body.acks, body.timeout_ms, self._hints)
        if body.acks not in _ACKS:
            produce.refusal = _invalid_acks(body.acks)
        elif body.transactional_id is not None and self._verification.begin(
            produce, body, self._append
        ):
            return
        self._append(produce, body)

    def _append(self, produce: ProduceInFlight, body: ProduceBody) -> None:
        if self._turns.groups(produce.exchange.connection):
            self._turns.join(produce)
            self._stage_all(produce, body)
            self._turns.joined()
            return
        try:
            self._stage_all(produce, body)
        finally:
            self._turns.alone(produce)

    def _stage_all(self, produce: ProduceInFlight, body: ProduceBody) -> None:
        refusal = produce.refusal
        now_ms = self._clock.now_ms()
        for topic, partitions in body.topics:
            answers: list[PartitionAnswer] = []
            produce.answers.append((topic, answers))
            for index, records in partitions:
                if refusal is not None:
                    self._refuse(produce, answers, topic, index, refusal, None, records)
                else:
                    self._stage(produce, answers, topic, index, records, now_ms)

    def _stage(
        self,
        produce: ProduceInFlight,
        answers: list[PartitionAnswer],
        topic: TopicKey,
        index: int,
        records: memoryview | None,
        now_ms: int,
    ) -> None:
        partition: Partition | None = None
        transaction = produce.transaction
        try:
            if transaction is not None and transaction.errors:
                transaction.check(topic, index)
            partition = self._replicas.leader_of(topic, index)
            partition.counters.produce_requests += 1
            batch = partition.rules.checked(
                records, produce.exchange.version, now_ms, transaction is not None
            )
            guard = NOT_ASKED if transaction is None else transaction.guard_for(topic, partition)
            if partition.under_min_isr and produce.acks == ACKS_ALL:
                raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
            info = partition.log.stage([batch], partition.leader_epoch, now_ms, guard=guard)
        except ApiError as e:
            self._refuse(produce, answers, topic, index, e, partition, records)
            return
        except StorageError as refusal:
            error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(refusal))
            self._refuse(produce, answers, topic, index, error, partition, records)
            return
        produce.staged.append((partition, answers, len(answers), info.last_offset + 1))
        answers.append(
            appended(index, info.first_offset, info.log_append_time, info.log_start_offset)
        )
        if not info.duplicate:
            counters = partition.counters
            size = len(batch.data)
            counters.messages_in += batch.header.record_count
            counters.bytes_in += size
            self._turns.staged_bytes += size

    def _refuse(
        self,
        produce: ProduceInFlight,
        answers: list[PartitionAnswer],
        topic: TopicKey,
        index: int,
        error: ApiError,
        partition: Partition | None,
        records: memoryview | None,
    ) -> None:
        answers.append(produce.moved(topic, _error(index, error, partition)))
        self._count_error(ApiKey.PRODUCE, error.code)
        if partition is not None:
            partition.counters.failed_produce_requests += 1
            partition.counters.bytes_rejected += len(records or b"")

    def write_turn(self) -> None:
        """Write and answer all that is staged; before a log is changed otherwise."""
        self._turns.write_all()

    async def stop(self) -> None:
        """Give up what still waits to be verified, and write what is staged."""
        await self._verification.stop()
        self._turns.stop()

    def _note_failure(self, partition: Partition, error: Exception) -> None:
        self.append_failures += 1
        self._count_error(ApiKey.PRODUCE, ErrorCode.KAFKA_STORAGE_ERROR)
        name = f"{partition.topic}-{partition.index}"
        self._alarm.raised(name, f"append to {name} refused: {error}", partition=name)


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
