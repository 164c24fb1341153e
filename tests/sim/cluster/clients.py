"""Simulated producers and consumers that behave as real clients do.

An idempotent producer has up to `IN_FLIGHT_MAX` batches of a partition on their way and sends each,
with the same sequence, until it is acknowledged. A consumer follows a partition from its start, or
reads it all again and
again. Both tell the `History` what they were promised and saw.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.peers.errors import PeerError
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.records import Record, build_batch

from .checks import History, Violation, holds
from .clock import EPOCH_MS
from .trace import Trace
from .wire import REQUEST_TIMEOUT_S, Leader, Wire, pause

RETRY_S = 0.1
IN_FLIGHT_MAX = 5
KEYS = 6
EARLIEST, LATEST = -2, -1
NEVER_FOR_IDEMPOTENT = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.INVALID_RECORD,
    }
)


class Batch(NamedTuple):
    sequence: int
    values: list[bytes]
    data: bytes


class Producer:
    """Writes to one partition; idempotent with acks=all, or neither."""

    def __init__(
        self,
        wire: Wire,
        history: History,
        trace: Trace,
        rng: random.Random,
        topic: str,
        partition: int,
        *,
        idempotent: bool = True,
    ) -> None:
        self.wire = wire
        self.history = history
        self.trace = trace
        self.rng = rng
        self.topic, self.partition = topic, partition
        self.idempotent = idempotent
        self.stopping = False
        self.rests_s = 0.0
        """How much longer it pauses than it was told to."""
        self.sent = 0
        self._producer_id = -1
        self._number = 0
        self._sequence = 0
        self._unacknowledged: list[Batch] = []

    async def run(self, pause_s: float) -> None:
        while self.idempotent and self._producer_id < 0 and not self.stopping:
            await self._init()
        while not self.stopping:
            # A partition that knows nothing of a producer takes any sequence as its first, as in
            # Kafka: nothing may follow the first batch before it is acknowledged.
            wanted = self.rng.choice((1, 1, 3, IN_FLIGHT_MAX)) if self.sent else 1
            self._unacknowledged += [self._batch() for _ in range(wanted)]
            while self._unacknowledged and not self.stopping:
                if not await self._send_all():
                    await pause(RETRY_S * self.rng.uniform(0.5, 1.5))
            await pause(self.rng.expovariate(1.0) * pause_s + self.rests_s)

    async def _init(self) -> None:
        try:
            answer = await self.wire.call_any(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            )
        except PeerError:
            await pause(RETRY_S)
            return
        if answer.error_code:
            await pause(RETRY_S)
            return
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    def _value(self) -> bytes:
        text = f"{self.wire.name}/{self._number} ".encode()
        self._number += 1
        size = self.rng.choice((0, 10, 100, 1000))
        return text + b"x" * self.rng.randint(0, size)

    def _records(self) -> list[tuple[bytes | None, bytes | None]]:
        """Keys and values of the next batch."""
        key = b"k" if self.idempotent else None
        return [(key, self._value()) for _ in range(self.rng.randint(1, 4))]

    def _batch(self) -> Batch:
        now_ms = EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)
        records = [Record(i, now_ms, *said) for i, said in enumerate(self._records())]
        history = self.history.of(self.topic, self.partition)
        values = [history.text_of(record) for record in records]
        sequence, self._sequence = self._sequence, self._sequence + len(values)
        how = {}
        if self.idempotent:
            how = {
                "producer_id": self._producer_id,
                "producer_epoch": self._epoch,
                "base_sequence": sequence,
            }
        return Batch(sequence, values, build_batch(records, **how))

    async def _send_all(self) -> bool:
        """Send what is not acknowledged, in order, without waiting in between; whether all is."""
        try:
            leader = await self.wire.leader_of(self.topic, self.partition)
            if leader is None:
                return False
            connection = await self.wire.connection(leader.node_id)
        except PeerError:
            self.wire.forget(self.topic, self.partition)
            return False
        batches = list(self._unacknowledged)
        calls = [
            connection.send(self._request(batch), None, REQUEST_TIMEOUT_S) for batch in batches
        ]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for i, (batch, answer) in enumerate(zip(batches, answers, strict=True)):
            if isinstance(answer, PeerError):
                self.wire.forget(self.topic, self.partition)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                told = answer.responses[0].partition_responses[0]
                if self._took(told, batch, first=i == 0, leader=leader):
                    self._unacknowledged.remove(batch)
                    self.sent += len(batch.values)
        return not self._unacknowledged

    def _request(self, batch: Batch) -> ProduceRequest:
        return ProduceRequest(
            acks=-1 if self.idempotent else 1,
            timeout_ms=5_000,
            topic_data=[
                TopicProduceData(
                    topic_id=self.wire.topic_ids[self.topic],
                    partition_data=[PartitionProduceData(index=self.partition, records=batch.data)],
                )
            ],
        )

    def _took(self, answer: Any, batch: Batch, *, first: bool, leader: Leader) -> bool:
        """Whether the batch is acknowledged; `first` says that all before it had been."""
        code = ErrorCode(answer.error_code)
        who = f"{self.wire.name} by n{leader.node_id} in epoch {leader.epoch}"
        self.trace.event(f"{who} produce {batch.sequence} {code.name} {answer.base_offset}")
        self.trace.paths.answered(code.name)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            if self.idempotent and answer.base_offset >= 0:
                self.history.acknowledge(
                    self.topic, self.partition, answer.base_offset, batch.values, who
                )
            return True
        if self.idempotent and first and code in NEVER_FOR_IDEMPOTENT:
            raise Violation(
                f"{who} got {code.name} for sequence {batch.sequence} of "
                f"{self.topic}-{self.partition}: {answer.error_message}"
            )
        self.trace.say(self.wire.name, f"{self.topic}-{self.partition}: {code.name}")
        self.wire.forget(self.topic, self.partition)
        return False


class ScatteringProducer(Producer):
    """Writes to several partitions over one connection to each leader, and is promised nothing."""

    partitions = 2

    async def _send_all(self) -> bool:
        calls = []
        for batch in self._unacknowledged:
            self.partition = self.rng.randrange(self.partitions)
            try:
                leader = await self.wire.leader_of(self.topic, self.partition)
                if leader is None:
                    return False
                connection = await self.wire.connection(leader.node_id)
            except PeerError:
                self.wire.forget(self.topic, self.partition)
                return False
            calls.append((connection, self.partition, self._request(batch)))
        sent = [
            connection.send(request, None, REQUEST_TIMEOUT_S) for connection, _, request in calls
        ]
        answers = await asyncio.gather(*sent, return_exceptions=True)
        for (_, partition, _), answer in zip(calls, answers, strict=True):
            if isinstance(answer, PeerError):
                self.wire.forget(self.topic, partition)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
                self.trace.paths.answered(code.name)
                if code != ErrorCode.NONE:
                    self.wire.forget(self.topic, partition)
                self.sent += code == ErrorCode.NONE
        self._unacknowledged.clear()
        return True


class KeyedProducer(Producer):
    """Writes a few keys again and again, and deletes them now and then."""

    def _records(self) -> list[tuple[bytes | None, bytes | None]]:
        rng = self.rng
        return [
            (f"{self.wire.name}.{rng.randrange(KEYS)}".encode(), self._value_or_none())
            for _ in range(rng.randint(1, 4))
        ]

    def _value_or_none(self) -> bytes | None:
        return None if self.rng.random() < 0.15 else self._value()


class Consumer:
    """Reads one partition."""

    def __init__(
        self,
        wire: Wire,
        history: History,
        trace: Trace,
        rng: random.Random,
        topic: str,
        partition: int,
    ) -> None:
        self.wire = wire
        self.history = history
        self.trace = trace
        self.rng = rng
        self.topic, self.partition = topic, partition
        self.offset = 0
        self.high_watermark = -1
        self.stopping = False
        self.again = 0.0
        """The chance of beginning anew after a fetch."""

    async def run(self) -> None:
        while not self.stopping:
            if not await self.fetch():
                await pause(RETRY_S * self.rng.uniform(0.5, 1.5))
            elif self.rng.random() < self.again:
                self.offset = 0

    async def fetch(self, max_wait_ms: int = 500) -> bool:
        """One fetch; whether it was answered."""
        try:
            leader = await self.wire.leader_of(self.topic, self.partition)
            if leader is None:
                return False
            known = self._known(leader)
            answer = await self.wire.call_node(leader.node_id, self._request(leader, max_wait_ms))
        except PeerError:
            self._lost()
            return False
        if answer.error_code:
            self.trace.paths.answered(ErrorCode(answer.error_code).name)
            self._lost()
            return False
        self._answered(answer)
        if not answer.responses:
            return self._no_news()
        part = answer.responses[0].partitions[0]
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return await self._begin_anew(part, leader)
        return self._took(part, leader, known)

    def _lost(self) -> None:
        """A fetch was answered with nothing, or not at all."""
        self.wire.forget(self.topic, self.partition)

    def _answered(self, answer: Any) -> None:
        """Sessions go on from here."""

    def _no_news(self) -> bool:
        self._lost()
        return False

    def _known(self, leader: Leader) -> tuple[int, int]:
        """What a leader has told of its high watermark and log start before it is asked again."""
        place = self.topic, self.partition, leader.epoch
        return self.history.watermark(*place), self.history.log_start(*place)

    async def _begin_anew(self, answer: Any, leader: Leader) -> bool:
        """What was to be read next may have gone; never what is not there yet."""
        start = await self.listed_offset(EARLIEST)
        now = self.wire.leaders.get((self.topic, self.partition))
        if start is None or now is None or now.epoch != leader.epoch:
            return False
        holds(
            start > self.offset,
            f"{self.topic}-{self.partition}: {self.wire.name} read up to {self.offset}, and "
            f"node {leader.node_id} (epoch {leader.epoch}) does not have it: its high "
            f"watermark is {answer.high_watermark}, was {self.high_watermark}",
        )
        self.trace.paths.answered("OFFSET_OUT_OF_RANGE")
        self.trace.event(f"{self.wire.name} goes from {self.offset} to log start {start}")
        self.history.of(self.topic, self.partition).told_start(leader.epoch, start)
        self.offset = start
        return True

    def _request(self, leader: Leader, max_wait_ms: int) -> FetchRequest:
        partition = FetchPartition(
            partition=self.partition,
            current_leader_epoch=leader.epoch,
            fetch_offset=self.offset,
            partition_max_bytes=self.rng.choice((1, 4096, 1 << 20)),
        )
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[FetchTopic(topic_id=self.wire.topic_ids[self.topic], partitions=[partition])],
        )

    def _took(self, answer: Any, leader: Leader, known: tuple[int, int]) -> bool:
        code = ErrorCode(answer.error_code)
        if code != ErrorCode.NONE:
            self.trace.event(f"{self.wire.name} fetch {code.name}")
            self.trace.paths.answered(code.name)
            self.wire.forget(self.topic, self.partition)
            return False
        place, watermark = (self.topic, self.partition, leader.epoch), answer.high_watermark
        self.history.told_watermark(*place, watermark, known[0])
        self.history.told_log_start(*place, answer.log_start_offset, known[1], watermark)
        self.high_watermark = answer.high_watermark
        who = f"{self.wire.name} from n{leader.node_id} in epoch {leader.epoch}"
        after = self.history.read(self.topic, self.partition, answer.records or b"", who)
        if after is not None:
            holds(
                after <= answer.high_watermark,
                f"{who} was given records up to {after}, beyond high watermark "
                f"{answer.high_watermark}",
            )
            self.offset = max(self.offset, after)
        self.trace.event(f"{self.wire.name} read to {self.offset}, hw {answer.high_watermark}")
        return True

    async def listed_offset(self, timestamp: int) -> int | None:
        """`EARLIEST` or `LATEST` as ListOffsets tells it; None while nobody does."""
        try:
            leader = await self.wire.leader_of(self.topic, self.partition)
            if leader is None:
                return None
            wanted = ListOffsetsPartition(
                partition_index=self.partition,
                current_leader_epoch=leader.epoch,
                timestamp=timestamp,
            )
            request = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name=self.topic, partitions=[wanted])]
            )
            answer = (await self.wire.call_node(leader.node_id, request)).topics[0].partitions[0]
        except PeerError:
            self.wire.forget(self.topic, self.partition)
            return None
        if answer.error_code:
            self.wire.forget(self.topic, self.partition)
            return None
        return int(answer.offset)


class SessionConsumer(Consumer):
    """Reads one partition in a fetch session: names it only when it wants something else of it."""

    _node = -1
    _session_id = 0
    _session_epoch = 0
    _named: tuple[int, int] | None = None
    """The offset and the leader epoch that the session knows."""

    def _request(self, leader: Leader, max_wait_ms: int) -> FetchRequest:
        request = super()._request(leader, max_wait_ms)
        if leader.node_id != self._node:
            self._begin_session(leader.node_id)
        request.session_id, request.session_epoch = self._session_id, self._session_epoch
        wanted = self.offset, leader.epoch
        if self._session_id and wanted == self._named:
            request.topics = []
        self._named = wanted
        return request

    def _begin_session(self, node_id: int) -> None:
        self._node, self._session_id, self._session_epoch, self._named = node_id, 0, 0, None

    def _lost(self) -> None:
        super()._lost()
        self._begin_session(-1)

    def _answered(self, answer: Any) -> None:
        if answer.session_id:
            self.trace.paths.reach("fetch session")
            self._session_id = answer.session_id
            self._session_epoch += 1

    def _no_news(self) -> bool:
        return True
