"""What transactions cost: throughput with and without them, and how long a commit takes.

Both clients write messages of 100 B to a partition on each node, all of them with three copies,
acknowledged by all in sync. `ConfluentClient` is what an application has, an idempotent librdkafka
producer. `RawClient` is a loop of requests, one in flight, in transactions version 2: it shows what
the cluster alone costs. Each is measured twice:

    paced         1,000 messages every 100 ms, each lot a transaction or not
    full speed    as fast as it goes, in transactions that are committed every 100 ms, or in none

A commit's latency is that of the paced transactions: from the call (after the messages are
acknowledged) until the producer knows that the decision stands.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any, Protocol

import crc32c
from confluent_kafka import Producer
from tests.support.cluster import Cluster

from penstock.base.errors import ErrorCode
from penstock.cli.bench.report import percentiles
from penstock.cli.bench.requests import batch_of
from penstock.kafka.brokers import TRANSACTION
from penstock.kafka.connection import Connection
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

from .nodes import Options, address, cpu_seconds, place_topic, prefixed, running
from .writers import ACKS_ALL, ANSWER_S_MAX, CLIENT, MESSAGE_BYTES, QUIET, TRY_AGAIN_S

TOPIC = "transactions"
REPLICAS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
LOT_MESSAGES = 1_000
LOT_S = 0.1
WARM_UP_S = 2.0
COMMITS_S_MIN = 30.0
"""For 300 commits, of which the third slowest is the 99th percentile."""
ROUNDS = 5
MILLION = 1_000_000

PRODUCE_VERSION, END_TXN_VERSION, INIT_VERSION, FIND_VERSION = 12, 5, 5, 2
TRANSACTIONAL = 0x10
CRC_AT, ATTRIBUTES_AT, PRODUCER_AT = 17, 21, 43
SEQUENCE_MAX = 2**31 - 1
_PASSING = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


class Client(Protocol):
    def write(self) -> None:
        """`LOT_MESSAGES` more, in the open transaction if there is one."""

    def settle(self) -> None:
        """Back when everything is acknowledged."""

    def commit(self) -> None:
        """The end of a transaction; the next begins with the next write."""

    def close(self) -> None: ...


class ConfluentClient:
    def __init__(self, cluster: Cluster, transactional_id: str | None) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 100_000,
            **QUIET,
        }
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
        self._producer = Producer(settings)
        self._is_transactional = transactional_id is not None
        self._is_open = False
        if self._is_transactional:
            self._producer.init_transactions(ANSWER_S_MAX)

    def write(self) -> None:
        if self._is_transactional and not self._is_open:
            self._producer.begin_transaction()
            self._is_open = True
        produce, value = self._producer.produce, bytes(MESSAGE_BYTES)
        for i in range(LOT_MESSAGES):
            while True:
                try:
                    produce(TOPIC, value, partition=i % len(REPLICAS))
                    break
                except BufferError:
                    self._producer.poll(0.01)
        self._producer.poll(0)

    def settle(self) -> None:
        if self._producer.flush(ANSWER_S_MAX):
            raise RuntimeError("messages were never acknowledged")

    def commit(self) -> None:
        self._producer.commit_transaction(ANSWER_S_MAX)
        self._is_open = False

    def close(self) -> None:
        self.settle()


class RawClient:
    """Each lot is one batch for one partition, the next for the next."""

    def __init__(self, cluster: Cluster, transactional_id: str | None) -> None:
        self._transactional_id = transactional_id
        self._leaders = [Connection(address(cluster, replicas[0]), CLIENT) for replicas in REPLICAS]
        self._coordinator = self._find_coordinator()
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        answer = _patiently(
            lambda: self._coordinator.call(request, InitProducerIdResponse, INIT_VERSION),
            lambda answer: answer.error_code,
        )
        self._producer = (answer.producer_id, answer.producer_epoch)
        self._sequences = [0] * len(REPLICAS)
        self._turn = 0
        self._batch = bytearray(batch_of(MESSAGE_BYTES, LOT_MESSAGES))
        if transactional_id is not None:
            struct.pack_into(">h", self._batch, ATTRIBUTES_AT, TRANSACTIONAL)

    def _find_coordinator(self) -> Connection:
        if self._transactional_id is None:
            return self._leaders[0]
        request = FindCoordinatorRequest(key=self._transactional_id, key_type=TRANSACTION)
        found = _patiently(
            lambda: self._leaders[0].call(request, FindCoordinatorResponse, FIND_VERSION),
            lambda answer: answer.error_code,
        )
        return Connection((found.host, found.port), CLIENT)

    def write(self) -> None:
        partition = self._turn = (self._turn + 1) % len(REPLICAS)
        sequence = self._sequences[partition]
        struct.pack_into(">qhi", self._batch, PRODUCER_AT, *self._producer, sequence)
        checksum = crc32c.crc32c(memoryview(self._batch)[ATTRIBUTES_AT:])
        struct.pack_into(">I", self._batch, CRC_AT, checksum)
        data = PartitionProduceData(index=partition, records=bytes(self._batch))
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=ACKS_ALL,
            timeout_ms=round(ANSWER_S_MAX * 1000),
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
        )
        _patiently(
            lambda: self._leaders[partition].call(request, ProduceResponse, PRODUCE_VERSION),
            lambda answer: answer.responses[0].partition_responses[0].error_code,
        )
        self._sequences[partition] = (sequence + LOT_MESSAGES) & SEQUENCE_MAX

    def settle(self) -> None:
        """Every write has waited for its answer."""

    def commit(self) -> None:
        producer_id, epoch = self._producer
        request = EndTxnRequest(
            transactional_id=self._transactional_id or "",
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=True,
        )
        answer = _patiently(
            lambda: self._coordinator.call(request, EndTxnResponse, END_TXN_VERSION),
            lambda answer: answer.error_code,
        )
        self._producer = (answer.producer_id, answer.producer_epoch)
        self._sequences = [0] * len(REPLICAS)  # each transaction has an epoch of its own

    def close(self) -> None:
        for connection in {self._coordinator, *self._leaders}:
            connection.close()


def _patiently(call: Callable[[], Any], code: Callable[[Any], int]) -> Any:
    """The answer to a request that is sent again while its error is a passing one."""
    deadline = time.monotonic() + ANSWER_S_MAX
    while True:
        answer = call()
        error = code(answer)
        if not error:
            return answer
        if error not in _PASSING or time.monotonic() > deadline:
            raise RuntimeError(f"refused with {ErrorCode(error).name}")
        time.sleep(TRY_AGAIN_S)


def paced(client: Client, seconds: float, *, commits: bool) -> tuple[int, list[int]]:
    """A lot every `LOT_S`; how many messages, and the latencies in ns of their commits."""
    latencies: list[int] = []
    lots = 0
    due = time.perf_counter()
    end = due + seconds
    while due < end:
        time.sleep(max(0.0, due - time.perf_counter()))
        client.write()
        client.settle()
        if commits:
            began = time.perf_counter_ns()
            client.commit()
            latencies.append(time.perf_counter_ns() - began)
        lots += 1
        # A lot that comes late does not make those after it come faster.
        due = max(due + LOT_S, time.perf_counter())
    return lots * LOT_MESSAGES, latencies


def full_speed(client: Client, seconds: float, *, commits: bool) -> int:
    """As many lots as go into so many seconds, committed every `LOT_S`; how many messages."""
    lots = 0
    began = now = time.perf_counter()
    due = began + LOT_S
    while now < began + seconds:
        client.write()
        lots += 1
        now = time.perf_counter()
        if commits and (now >= due or now >= began + seconds):
            client.commit()
            due = time.perf_counter() + LOT_S
    client.settle()
    return lots * LOT_MESSAGES


class Tally:
    """What one client did at full speed, over several rounds."""

    def __init__(self) -> None:
        self.messages = 0
        self.seconds = 0.0
        self.cpu_s = 0.0

    def figures(self) -> dict[str, Any]:
        return {
            "full_per_s": round(self.messages / self.seconds),
            "full_cpu_s_per_million": round(self.cpu_s / self.messages * MILLION, 2),
        }


def transactions(options: Options) -> dict[str, Any]:
    """Both clients, paced and at full speed, without transactions and with them."""
    found: dict[str, Any] = {}
    with running(options) as cluster:
        place_topic(cluster, TOPIC, REPLICAS, {"min.insync.replicas": "2"})
        for name, make in (("confluent", ConfluentClient), ("raw", RawClient)):
            plain, with_them = make(cluster, None), make(cluster, f"bench-{name}")
            found |= prefixed(name, _compared(cluster, plain, with_them, options.seconds))
            plain.close()
            with_them.close()
    return found


def _compared(cluster: Cluster, plain: Client, with_them: Client, seconds: float) -> dict[str, Any]:
    without_s = _paced_per_s(plain, seconds, commits=False)[0]
    with_s, latencies = _paced_per_s(with_them, max(seconds, COMMITS_S_MIN), commits=True)
    full = {False: Tally(), True: Tally()}
    # In turns, so that whatever else the machine does strikes both alike.
    for _ in range(ROUNDS):
        for client, commits in ((plain, False), (with_them, True)):
            tally = full[commits]
            before, began = cpu_seconds(cluster), time.perf_counter()
            tally.messages += full_speed(client, seconds / ROUNDS, commits=commits)
            tally.seconds += time.perf_counter() - began
            tally.cpu_s += cpu_seconds(cluster) - before
    without_full, with_full = full[False].figures(), full[True].figures()
    return {
        **prefixed("plain", {"paced_per_s": without_s, **without_full}),
        **prefixed("txn", {"paced_per_s": with_s, **with_full}),
        **prefixed("txn_commit", percentiles(latencies)),
        "paced_cost_percent": _percent(1 - with_s / without_s),
        "full_cost_percent": _percent(1 - with_full["full_per_s"] / without_full["full_per_s"]),
        "full_cpu_cost_percent": _percent(
            with_full["full_cpu_s_per_million"] / without_full["full_cpu_s_per_million"] - 1
        ),
    }


def _paced_per_s(client: Client, seconds: float, *, commits: bool) -> tuple[int, list[int]]:
    paced(client, WARM_UP_S, commits=commits)
    began = time.perf_counter()
    messages, latencies = paced(client, seconds, commits=commits)
    return round(messages / (time.perf_counter() - began)), latencies


def _percent(share: float) -> float:
    return round(share * 100, 1)
