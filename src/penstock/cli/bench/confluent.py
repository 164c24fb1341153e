"""The same measurements through confluent-kafka: what an application gets, mostly bounded by the
client itself.
"""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from penstock.cli.errors import CliError
from penstock.cli.kafka import Cluster

CONSUME_MESSAGES = 10_000
LAST_ANSWER_S_MAX = 10.0
CONSUMER_SETTINGS = {
    "group.id": "penstock-bench",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "fetch.queue.backoff.ms": 1,
    "check.crcs": False,
}


class ConfluentProducer:
    """Publishes equal messages as fast as librdkafka takes them."""

    def __init__(
        self, cluster: Cluster, topic: str, value: bytes, settings: dict[str, Any]
    ) -> None:
        self.failed: KafkaError | None = None
        self._topic = topic
        self._value = value
        self._producer = cluster.producer(
            {"delivery.report.only.error": True, "on_delivery": self._delivered, **settings}
        )

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        self.failed = error

    def run(self, seconds: float) -> tuple[int, float]:
        """Messages delivered, and the seconds until the last of them was."""
        produce, poll = self._producer.produce, self._producer.poll
        topic, value = self._topic, self._value
        sent = 0
        started = time.perf_counter()
        deadline = started + seconds
        while time.perf_counter() < deadline:
            try:
                for _ in range(100):
                    produce(topic, value)
                    sent += 1
            except BufferError:
                poll(0.001)
            poll(0)
        self._producer.flush()
        if self.failed is not None:
            raise CliError(
                f"a message was not delivered ({self.failed.str()}): look at the broker's log"
            )
        return sent, time.perf_counter() - started


def consume(
    cluster: Cluster, topic: str, start: int, end: int, seconds: float
) -> tuple[int, int, float]:
    """Messages and bytes read from partition 0, round and round, and the seconds that took."""
    consumer = cluster.consumer(CONSUMER_SETTINGS)
    messages = size = 0
    try:
        consumer.assign([TopicPartition(topic, 0, start)])
        _first_messages(consumer)
        started = time.perf_counter()
        deadline = started + seconds
        while time.perf_counter() < deadline:
            got = _read(consumer, CONSUME_MESSAGES, 0.1)
            if not got:
                continue
            messages += len(got)
            size += sum(len(message) for message in got)
            if (got[-1].offset() or 0) >= end - 1:
                consumer.assign([TopicPartition(topic, 0, start)])
        return messages, size, time.perf_counter() - started
    finally:
        consumer.close()


def _read(consumer: Consumer, count: int, timeout_s: float) -> list[Message]:
    """Messages without the client's remarks, such as that it found no coordinator for a group."""
    return [m for m in consumer.consume(count, timeout_s) if m.error() is None]


def _first_messages(consumer: Consumer) -> None:
    """Wait until the consumer has found its broker and reads."""
    deadline = time.perf_counter() + LAST_ANSWER_S_MAX
    while not _read(consumer, 1, 0.1):
        if time.perf_counter() > deadline:
            raise CliError(
                "the client read nothing from the filled topic: look at the broker's log"
            )


def latency(
    cluster: Cluster, topic: str, value: bytes, rate: float, seconds: float
) -> tuple[list[int], float]:
    """The latency of each message in ns from when it was due, and the seconds in which they were
    sent.
    """
    producer = cluster.producer({"linger.ms": 0})
    consumer = cluster.consumer({**CONSUMER_SETTINGS, "fetch.wait.max.ms": 500})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        producer.produce(topic, value, partition=0)
        producer.flush()
        _first_messages(consumer)
        return _paced(producer, consumer, topic, value, round(1e9 / rate), round(seconds * rate))
    finally:
        consumer.close()


def _paced(
    producer: Producer, consumer: Consumer, topic: str, value: bytes, interval: int, total: int
) -> tuple[list[int], float]:
    latencies: list[int] = []
    sent = 0
    first = time.perf_counter_ns() + 1_000_000
    sent_ns = 0
    give_up = 0.0
    while len(latencies) < total:
        if sent < total and time.perf_counter_ns() >= first + sent * interval:
            producer.produce(topic, value, partition=0)
            sent += 1
            sent_ns = time.perf_counter_ns() - first
            give_up = time.perf_counter() + LAST_ANSWER_S_MAX
        producer.poll(0)
        for message in _read(consumer, 100, 0):
            number = (message.offset() or 0) - 1  # offset 0 was the one that found the broker
            latencies.append(time.perf_counter_ns() - (first + number * interval))
        if give_up and time.perf_counter() > give_up:
            raise CliError(
                f"{total - len(latencies)} messages never came back: look at the broker's log"
            )
    return latencies, sent_ns / 1e9
