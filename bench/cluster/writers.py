"""Clients that write at a steady rate to all partitions and note each answer, while nodes go.

`ConfluentWriter` is what an application has: an idempotent librdkafka producer with its own
patience. `RawWriter` has none: it asks for the leader and tries again at once, so that it shows how
long the cluster itself takes. Each owns its threads; `acks` is only added to, and may be read while
it grows. Times are those of `time.perf_counter_ns`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from confluent_kafka import Producer

from penstock.cli.bench.requests import PRODUCE_VERSION, batch_of
from penstock.kafka.client import Address, Client
from penstock.kafka.connection import Connection
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

MESSAGE_BYTES = 100
METADATA_VERSION = 12
ANSWER_S_MAX = 30.0
TRY_AGAIN_S = 0.005
STOP_S_MAX = 60.0
ACKS_ALL = -1
NS = 1_000_000_000
QUIET = {"log_level": 2}
"""A node that is killed is no news."""

CLIENT = Client("bench", connect_s=ANSWER_S_MAX, answer_s=ANSWER_S_MAX)


class Ack(NamedTuple):
    """One message that was acknowledged."""

    partition: int
    sent_ns: int
    acked_ns: int


class Writer:
    """`per_second` messages to `partitions` in turn, from `start` to `stop`."""

    def __init__(self, topic: str, partitions: int, per_second: float) -> None:
        self.topic = topic
        self.partitions = partitions
        self.acks: list[Ack] = []
        self.errors: list[str] = []
        self._interval_ns = round(NS / per_second)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def _spawn(self, work: Callable[..., None], *args: Any) -> None:
        self._threads.append(threading.Thread(target=work, args=args, daemon=True))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends writing and waits for the answers that are due."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(STOP_S_MAX)
            if thread.is_alive():
                raise RuntimeError(f"{type(self).__name__} does not end")

    def acked_since(self, moment_ns: int) -> dict[int, int]:
        """When each partition first acknowledged a message that was sent after a moment."""
        first: dict[int, int] = {}
        for ack in reversed(self.acks[:]):
            if ack.acked_ns < moment_ns:
                break
            if ack.sent_ns > moment_ns:
                first[ack.partition] = ack.acked_ns
        return first


class ConfluentWriter(Writer):
    def __init__(self, bootstrap: str, topic: str, partitions: int, per_second: float) -> None:
        super().__init__(topic, partitions, per_second)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                **QUIET,
            }
        )
        self._spawn(self._write)

    def _write(self) -> None:
        due = time.perf_counter_ns()
        number = 0
        while not self._stopping.is_set():
            wait_ns = due - time.perf_counter_ns()
            if wait_ns > 0:
                self._producer.poll(wait_ns / NS)
                continue
            self._send(number % self.partitions)
            number += 1
            due += self._interval_ns
        if left := self._producer.flush(STOP_S_MAX / 2):
            self.errors.append(f"{left} messages were never answered")

    def _send(self, partition: int) -> None:
        sent = time.perf_counter_ns()

        def answered(error: Any, _message: Any) -> None:
            if error is None:
                self.acks.append(Ack(partition, sent, time.perf_counter_ns()))
            else:
                self.errors.append(str(error))

        value = bytes(MESSAGE_BYTES)
        self._producer.produce(self.topic, value, partition=partition, on_delivery=answered)


class RawWriter(Writer):
    """A thread and a connection for each partition; one message at a time, again until it is
    acknowledged.
    """

    def __init__(
        self, addresses: list[Address], topic: str, partitions: int, per_second: float
    ) -> None:
        super().__init__(topic, partitions, per_second / partitions)
        self._addresses = addresses
        self._batch = batch_of(MESSAGE_BYTES, 1)
        for partition in range(partitions):
            self._spawn(self._write, partition)

    def _write(self, partition: int) -> None:
        due = time.perf_counter_ns()
        connection: Connection | None = None
        while not self._stopping.wait(max(0, due - time.perf_counter_ns()) / NS):
            sent = time.perf_counter_ns()
            while not self._stopping.is_set():
                try:
                    connection = connection or leader_of(self._addresses, self.topic, partition)
                    if connection is not None and self._produce(connection, partition):
                        self.acks.append(Ack(partition, sent, time.perf_counter_ns()))
                        break
                except OSError:
                    pass
                if connection is not None:
                    connection.close()
                    connection = None
                time.sleep(TRY_AGAIN_S)
            due = max(due + self._interval_ns, time.perf_counter_ns())
        if connection is not None:
            connection.close()

    def _produce(self, connection: Connection, partition: int) -> bool:
        data = PartitionProduceData(index=partition, records=self._batch)
        topics = [TopicProduceData(name=self.topic, partition_data=[data])]
        timeout_ms = round(ANSWER_S_MAX * 1000)
        request = ProduceRequest(acks=ACKS_ALL, timeout_ms=timeout_ms, topic_data=topics)
        answer = connection.call(request, ProduceResponse, PRODUCE_VERSION)
        return not answer.responses[0].partition_responses[0].error_code


def leader_of(addresses: list[Address], topic: str, partition: int) -> Connection | None:
    """A connection to the leader, as the first node that answers knows it."""
    topics = [MetadataRequestTopic(name=topic)]
    for address in addresses:
        with suppress(OSError), Connection(address, CLIENT) as asked:
            request = MetadataRequest(topics=topics)
            answer = asked.call(request, MetadataResponse, METADATA_VERSION)
            brokers = {broker.node_id: broker for broker in answer.brokers}
            for found in answer.topics[0].partitions:
                leader = brokers.get(found.leader_id)
                if found.partition_index == partition and leader is not None:
                    return Connection((leader.host, leader.port), CLIENT)
    return None
