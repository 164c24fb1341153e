"""Record batches to the leaders of their partitions, each exactly once as far as one task goes.

Duty: gives batches their sequence numbers, sends them, and sends again what an election, a lost
connection or a full in-sync set has kept from being acknowledged.

Invariants: a partition has at most one batch on its way, and a batch that is repeated keeps its
sequence, so the broker knows it again: a repetition is acknowledged and not stored. `finish`
returns only when all that was sent is acknowledged by all in-sync replicas.

Limits: one request per leader is on its way while the next is being made; its batches are held
until they are acknowledged, so a task holds two chunks of rows, and twice `REQUEST_BYTES_MAX` of
requests. Belongs to one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.kafka.brokers import ROWS, Brokers, Patience
from penstock.kafka.client import Address
from penstock.kafka.connection import Connection
from penstock.kafka.errors import ClusterError
from penstock.spark.encoding import Rows, Stamp, encode, payload_bytes
from penstock.spark.errors import SparkError
from penstock.wire.compression import Compression
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

PRODUCE_VERSION: Final = 9
REQUEST_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of rows; a larger one has a request of its own. Brokers take 100 MB by default."""
ACKS_ALL: Final = -1
ACKNOWLEDGE_MS_MAX: Final = 20_000
SEQUENCES: Final = 2**31

_WRITTEN: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
_PASSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # a new topic that its leader has not heard of yet
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
_FENCED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)


class Fenced(SparkError):
    """Another attempt of the task, or another run of the query, has taken its transaction over; or
    it took longer than its time-out.
    """


class Identity(NamedTuple):
    """Who writes; `transactional_id` is None where delivery is at least once."""

    transactional_id: str | None
    producer_id: int
    producer_epoch: int


class Batch(NamedTuple):
    """Rows for one partition, with the sequence number of the first."""

    topic: str
    partition: int
    rows: Rows
    sequence: int


def in_rounds(batches: Iterable[Batch]) -> list[list[Batch]]:
    """The batches in rounds that are sent one after the other: in each at most one of a partition,
    in their order, and no more than a request may hold.
    """
    rounds: list[list[Batch]] = []
    loads: list[int] = []
    after: dict[tuple[str, int], int] = {}
    for batch in batches:
        size = int(batch.rows.sizes().sum())
        turn = after.get((batch.topic, batch.partition), 0)
        while turn < len(rounds) and loads[turn] + size > REQUEST_BYTES_MAX:
            turn += 1
        if turn == len(rounds):
            rounds.append([])
            loads.append(0)
        rounds[turn].append(batch)
        loads[turn] += size
        after[batch.topic, batch.partition] = turn + 1
    return rounds


class Producer:
    def __init__(
        self,
        brokers: Brokers,
        identity: Identity,
        compression: Compression,
        before_first: Callable[[list[tuple[str, int]]], None],
    ) -> None:
        """`before_first` is told of partitions before anything is sent to them."""
        self._brokers = brokers
        self._identity = identity
        self._compression = compression
        self._before_first = before_first
        self._sequences: dict[tuple[str, int], int] = {}
        self._on_their_way: list[tuple[Address, Connection, list[Batch]]] = []

    def send(self, pieces: Iterable[tuple[str, int, Rows]]) -> None:
        """Sends rows to their partitions, in the order in which they come."""
        pieces = list(pieces)
        new = {(topic, partition) for topic, partition, _ in pieces} - self._sequences.keys()
        if new:
            self._before_first(sorted(new))
        batches = []
        for topic, partition, rows in pieces:
            sequence = self._sequences.get((topic, partition), 0)
            self._sequences[topic, partition] = (sequence + len(rows)) % SEQUENCES
            batches.append(Batch(topic, partition, rows, sequence))
        for together in in_rounds(batches):
            self._send_round(together)

    def finish(self) -> None:
        """Returns when everything is acknowledged."""
        on_their_way, self._on_their_way = self._on_their_way, []
        again: list[tuple[Batch, ErrorCode]] = []
        for address, connection, batches in on_their_way:
            again += self._receive(address, connection, batches)
        for batch, code in again:
            self._insist(batch, code)

    def _send_round(self, batches: list[Batch]) -> None:
        """At most one batch for each partition; what was sent before is awaited first."""
        requests: dict[Address, tuple[list[Batch], ProduceRequest]] = {}
        homeless: list[Batch] = []
        by_leader: dict[Address, list[Batch]] = {}
        for batch in batches:
            leader = self._brokers.leaders(batch.topic).addresses[batch.partition]
            if leader is None:
                homeless.append(batch)
            else:
                by_leader.setdefault(leader, []).append(batch)
        for address, mine in by_leader.items():
            requests[address] = mine, self._request(mine)
        self.finish()
        for address, (mine, request) in requests.items():
            try:
                connection = self._brokers.connection(address, ROWS)
                connection.send(request, PRODUCE_VERSION)
            except OSError:
                self._brokers.drop(address, ROWS)
                homeless += mine
            else:
                self._on_their_way.append((address, connection, mine))
        if homeless:
            self.finish()  # a leader may be the same as another's
        for batch in homeless:
            self._insist(batch, ErrorCode.LEADER_NOT_AVAILABLE)

    def _receive(
        self, address: Address, connection: Connection, batches: list[Batch]
    ) -> list[tuple[Batch, ErrorCode]]:
        """What of these batches has to be sent again, and why."""
        try:
            answer = connection.receive(ProduceResponse, PRODUCE_VERSION)
        except OSError:
            self._brokers.drop(address, ROWS)
            return [(batch, ErrorCode.NETWORK_EXCEPTION) for batch in batches]
        codes = {
            (topic.name, partition.index): ErrorCode(partition.error_code)
            for topic in answer.responses
            for partition in topic.partition_responses
        }
        found = [(batch, codes[batch.topic, batch.partition]) for batch in batches]
        return [(batch, code) for batch, code in found if code not in _WRITTEN]

    def _insist(self, batch: Batch, code: ErrorCode) -> None:
        """Sends one batch until it is acknowledged; an error that does not pass is raised."""
        patience = Patience(self._brokers.settle_s)
        while code not in _WRITTEN:
            if code is ErrorCode.MESSAGE_TOO_LARGE and len(batch.rows) > 1:
                self._insist_on_halves(batch)
                return
            if code not in _PASSING:
                raise self._refused(batch, code)
            if not patience.wait():
                raise ClusterError(
                    f"{_place(batch)} could not be written for {self._brokers.settle_s:.0f} s"
                    f" ({code.name}); look at the broker's log and start the query again"
                )
            leader = self._brokers.leaders(batch.topic, refresh=True).addresses[batch.partition]
            if leader is None:
                continue
            code = self._try(leader, batch)

    def _insist_on_halves(self, batch: Batch) -> None:
        middle = len(batch.rows) // 2
        first, second = batch.rows.slice(0, middle), batch.rows.slice(middle, len(batch.rows))
        again = (batch.sequence + middle) % SEQUENCES
        self._insist(batch._replace(rows=first), ErrorCode.NETWORK_EXCEPTION)
        self._insist(batch._replace(rows=second, sequence=again), ErrorCode.NETWORK_EXCEPTION)

    def _try(self, leader: Address, batch: Batch) -> ErrorCode:
        try:
            connection = self._brokers.connection(leader, ROWS)
            connection.send(self._request([batch]), PRODUCE_VERSION)
        except OSError:
            self._brokers.drop(leader, ROWS)
            return ErrorCode.NETWORK_EXCEPTION
        again = self._receive(leader, connection, [batch])
        return again[0][1] if again else ErrorCode.NONE

    def _request(self, batches: list[Batch]) -> ProduceRequest:
        now_ms = int(time.time() * 1000)
        topics: dict[str, list[PartitionProduceData]] = {}
        name, producer_id, epoch = self._identity
        for batch in batches:
            stamp = Stamp(producer_id, epoch, batch.sequence, name is not None)
            records = encode(batch.rows, stamp, now_ms, self._compression)
            data = PartitionProduceData(index=batch.partition, records=records)
            topics.setdefault(batch.topic, []).append(data)
        return ProduceRequest(
            transactional_id=name,
            acks=ACKS_ALL,
            timeout_ms=ACKNOWLEDGE_MS_MAX,
            topic_data=[TopicProduceData(name=t, partition_data=d) for t, d in topics.items()],
        )

    def _refused(self, batch: Batch, code: ErrorCode) -> SparkError:
        if code in _FENCED:
            return fenced(self._identity.transactional_id or "", code)
        if code is ErrorCode.MESSAGE_TOO_LARGE:
            return SparkError(
                f"a row of {payload_bytes(batch.rows)} bytes is larger than topic"
                f" {batch.topic!r} allows; raise the topic's max.message.bytes or make the row"
                " smaller. Nothing of this batch of rows is visible to readers of committed data"
            )
        if code is ErrorCode.INVALID_TIMESTAMP:
            return SparkError(
                f"{_place(batch)} refuses the timestamps of rows: they are further from now than"
                " the topic's message.timestamp.before.max.ms or message.timestamp.after.max.ms"
                " allows. Set these, or write without the column timestamp"
            )
        return SparkError(f"{_place(batch)} refuses rows: {code.name}; look at the broker's log")


def fenced(transactional_id: str, code: ErrorCode) -> Fenced:
    return Fenced(
        f"the transaction of {transactional_id!r} is no longer this task's ({code.name}): another"
        " attempt of the task or another run of the query has begun, or it took longer than"
        " kafka.transaction.timeout.ms. Nothing of it is visible; the rows are written again when"
        " Spark repeats the task or the query is started again. Let only one query use a"
        " checkpoint, and keep spark.speculation off"
    )


def _place(batch: Batch) -> str:
    return f"partition {batch.partition} of topic {batch.topic!r}"
