"""The catalogue of queues: many consumers take messages from one, and acknowledge each.

Penstock and Apache Kafka do it by share groups and get exactly the same requests; RabbitMQ's
quorum queues and NATS's work queues are beside them where messages go one by one. Group and topic
have every server's defaults, but that a share group begins at the earliest record.

What was delivered is checked after each case: nothing twice, nothing missing, everything
acknowledged. A JVM has to compile what it runs, so before its first case here a server is
loaded for a while by a group that is not measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count

from .goals import KAFKA, NOBODY, Goal
from .idle_shares import added_bytes
from .kafka_wire import KafkaConsumer
from .load import Consumed, consume_by
from .nats_server import NatsServer
from .pacing import paced
from .queue_load import QueueLoad, Working
from .queue_wire import BY_DEFAULT, ONE, Asking
from .rabbitmq_server import RabbitMQQuorumQueue
from .server import Server
from .share_member import MAX_RECORDS
from .share_queue import PARTITIONS, PromptWire, ShareQueue
from .sockets import connect, quiet
from .workloads import (
    CPU,
    MB,
    PACED_S_MIN,
    PACED_TIMES,
    RATE,
    READ_S_MIN,
    Figures,
    Metric,
    Workload,
    at_a_rate,
)

SECTION = "queues: share groups, and single messages from other queues"
SIZE = 100
CONSUMERS = (1, 8, 64)
PER_BATCH = 100
"""Messages in a producer's batch: 100 of 100 B are most of the 16 KiB that it has by default."""
FILL_PER_S = 500_000
FILL_MAX = 1_000_000
CONSUME_TIMES = 4
CONSUME_S_MIN = 5.0
LIKE_BYTES = 64 * 1024
"""Of an answer to Fetch that holds about as much as one of ShareFetch with 500 records of 100 B."""
FETCH_BYTES = 1024 * 1024

ONE_CONSUMERS = 64
ONE_FILL_PER_S = 30_000
ONE_FILL_MIN = 15_000

RATE_PER_S = 1_000

WORKERS = 100
WORK_S = 0.005
WORK_PER_BATCH = 25
"""What one producer sends to each of 4 partitions in its 5 ms of linger, at the rate at which 100
consumers work.
"""
WORK_BEGINS_S = 4.0
"""A consumer that was given 500 messages is busy for 2.5 s: from then on nobody is at the start."""
WORK_S_MIN = 8.0
WORK_TIMES = 2

IDLE_GROUPS = 100
IDLE_PARTITIONS = 100

WARM_UP_PARTS = 2
"""Of a server's warm-up, for each way of asking."""
WARM_UP_FILL = 100_000

OF_LIKE = Metric("of_fetch", "as a part of Fetch with as large answers", "", True)
OF_FETCH = Metric("of_large_fetch", "as a part of Fetch of 1 MiB", "", True)
OF_THEORY = Metric("of_theory", "as a part of the theoretical rate", "", True)
ACKED = (
    Metric("p50_ms", "p50", "ms", False),
    Metric("p99_ms", "p99", "ms", False),
)

_numbers = count(1)


@contextmanager
def a_queue(server: Server) -> Iterator[str]:
    """A queue for as long as it is needed; none has the name of one before it."""
    queue, wire = f"queue-{next(_numbers)}", server.queue_wire()
    wire.make(queue)
    try:
        yield queue
    finally:
        wire.remove(queue)


def consume(
    server: Server, queue: str, filled: int, *, consumers: int, asking: Asking, seconds: float
) -> Consumed:
    """What so many consumers take of a full queue together; checked when it is over."""
    wire = server.queue_wire()
    load = QueueLoad(server)
    with quiet():
        try:
            socks = [connect(server) for _ in range(consumers)]
            workers = wire.consumers(queue, socks, asking)
            for sock, worker in zip(socks, workers, strict=True):
                load.add(sock, worker)
            load.begin()
            done = load.run(filled, seconds)
            load.drain()
        finally:
            load.close()
    wire.check(queue, workers, filled)
    return done


def warm_up(server: Server, asking: Asking) -> None:
    """Has a server do for a while what is measured then."""
    if asking in server.warm_for:
        return
    server.warm_for.add(asking)
    deadline = time.perf_counter() + server.warm_up_s / WARM_UP_PARTS
    while (left_s := deadline - time.perf_counter()) > 0:
        with a_queue(server) as queue:
            filled = server.queue_wire().fill(
                queue,
                ONE_FILL_MIN if asking.one else WARM_UP_FILL,
                size=SIZE,
                per_batch=1 if asking.one else PER_BATCH,
            )
            consume(server, queue, filled, consumers=8, asking=asking, seconds=left_s)


# A group at full speed, and plain Fetch of the same


def _share(consumers: int, server: Server, seconds: float) -> Figures:
    warm_up(server, BY_DEFAULT)
    limit_s = max(CONSUME_S_MIN, CONSUME_TIMES * seconds)
    wire = server.queue_wire()
    assert isinstance(wire, ShareQueue)
    with a_queue(server) as queue:
        messages = min(FILL_MAX, round(FILL_PER_S * seconds))
        filled = wire.fill(queue, messages, size=SIZE, per_batch=PER_BATCH)
        read = partial(consume, server, queue, filled, consumers=consumers, asking=BY_DEFAULT)
        done = read(seconds=limit_s)
        while done.seconds < READ_S_MIN:
            wire.begin_again(queue)
            done = done.and_then(read(seconds=limit_s))
        like, large = (
            _plain(server, queue, filled, consumers, fetch_bytes, limit_s)
            for fetch_bytes in (LIKE_BYTES, FETCH_BYTES)
        )
    per_s = done.messages / done.seconds
    return {
        "per_s": per_s,
        "cpu_s_per_million": done.cpu_s * 1e6 / done.messages,
        OF_LIKE.key: per_s / like,
        OF_FETCH.key: per_s / large,
    }


def _plain(
    server: Server, topic: str, filled: int, consumers: int, fetch_bytes: int, seconds: float
) -> float:
    """Messages per second by Fetch: partitions side by side, or one after the other if there is
    one consumer.
    """
    readers = [partial(_fetching, topic, partition, fetch_bytes) for partition in range(PARTITIONS)]
    lots = [readers] if consumers >= PARTITIONS else [[reader] for reader in readers]
    done = Consumed(0, 0.0, 0.0)
    while done.seconds < READ_S_MIN:
        for lot in lots:
            expected = filled // PARTITIONS
            done = done.and_then(consume_by(server, lot, expected=expected, seconds=seconds))
    return done.messages / done.seconds


def _fetching(topic: str, partition: int, fetch_bytes: int, _: object) -> KafkaConsumer:
    return KafkaConsumer(topic, partition=partition, fetch_bytes=fetch_bytes)


# One message at a time


def _one_at_a_time(server: Server, seconds: float) -> Figures:
    warm_up(server, ONE)
    with a_queue(server) as queue:
        messages = max(ONE_FILL_MIN, round(ONE_FILL_PER_S * seconds))
        filled = server.queue_wire().fill(queue, messages, size=SIZE, per_batch=1)
        limit_s = max(CONSUME_S_MIN, CONSUME_TIMES * seconds)
        done = consume(server, queue, filled, consumers=ONE_CONSUMERS, asking=ONE, seconds=limit_s)
    return {
        "per_s": done.messages / done.seconds,
        "cpu_s_per_million": done.cpu_s * 1e6 / done.messages,
    }


# From publishing to acknowledgement


def _acknowledged(rate: int, server: Server, seconds: float) -> Figures:
    warm_up(server, BY_DEFAULT)
    wire = PromptWire(server.host, server.port)
    topic = f"prompt-{next(_numbers)}"
    wire.make(topic)
    try:
        done = paced(
            server,
            topic,
            size=SIZE,
            rate=rate,
            messages_per_request=1,
            seconds=max(PACED_S_MIN, PACED_TIMES * seconds),
            wire=wire,
        )
    finally:
        wire.remove(topic)
    return at_a_rate(rate, done.reached_per_s, done.latencies_ns)


# Consumers that work


def _working(server: Server, seconds: float) -> Figures:
    """The rate is that of work that was done in the time: a consumer's five hundred messages count
    as they are finished, not as they were fetched.
    """
    warm_up(server, BY_DEFAULT)
    lasts_s = max(WORK_S_MIN, WORK_TIMES * seconds)
    in_theory = WORKERS / WORK_S
    wire, load = server.queue_wire(), Working(server, WORK_S)
    with a_queue(server) as queue:
        # More than can be worked off, so that the queue is never empty.
        messages = round(in_theory * (WORK_BEGINS_S + lasts_s)) + WORKERS * MAX_RECORDS
        filled = wire.fill(queue, messages, size=SIZE, per_batch=WORK_PER_BATCH)
        with quiet():
            try:
                socks = [connect(server) for _ in range(WORKERS)]
                workers = wire.consumers(queue, socks, BY_DEFAULT)
                for sock, worker in zip(socks, workers, strict=True):
                    load.add(sock, worker)
                load.begin()
                load.work(WORK_BEGINS_S)
                began, ended = load.work(lasts_s)
                load.drain()
            finally:
                load.close()
        wire.check(queue, workers, filled)
    done = load.busy_s(began, ended) / WORK_S
    per_s = done / (ended - began)
    return {"per_s": per_s, OF_THEORY.key: per_s / in_theory}


# Memory


def _idle(server: Server, _seconds: float) -> Figures:
    topic = f"idle-{next(_numbers)}"
    added = added_bytes(server, topic, groups=IDLE_GROUPS, partitions=IDLE_PARTITIONS)
    return {"mb": added / 1e6}


WORKLOADS: tuple[Workload, ...] = (
    Workload(
        SECTION,
        f"queue: publish to acknowledgement, {RATE_PER_S:,} messages/s of 100 B, one per request",
        ACKED,
        partial(_acknowledged, RATE_PER_S),
        shares=True,
    ),
    *(
        Workload(
            SECTION,
            f"queue: consume 100 B, {consumers} consumer{'s' if consumers > 1 else ''}"
            f" on {PARTITIONS} partitions",
            (RATE, CPU, OF_LIKE, OF_FETCH),
            partial(_share, consumers),
            shares=True,
        )
        for consumers in CONSUMERS
    ),
    Workload(
        SECTION,
        f"queue: one message at a time, {ONE_CONSUMERS} consumers",
        (RATE, CPU),
        _one_at_a_time,
        queues=True,
    ),
    Workload(
        SECTION,
        f"queue: {WORKERS} consumers with {WORK_S * 1000:g} ms of work for each message",
        (RATE, OF_THEORY),
        _working,
        shares=True,
    ),
    Workload(
        SECTION,
        f"queue: {IDLE_GROUPS * IDLE_PARTITIONS:,} idle share-partitions, memory added",
        (MB,),
        _idle,
        shares=True,
    ),
)


def _goals() -> Iterator[Goal]:
    for workload in WORKLOADS:
        for metric in workload.metrics:
            if metric in (OF_LIKE, OF_FETCH):
                yield Goal(workload.name, metric, NOBODY, 0.5)
            elif metric == RATE:
                works = workload.run is _working
                yield Goal(workload.name, metric, KAFKA, 2.0 if works else 1.0)
                if workload.queues:
                    yield Goal(workload.name, metric, RabbitMQQuorumQueue.name, 1.0)
                    yield Goal(workload.name, metric, NatsServer.name, 0.7)
            elif metric.key == "p99_ms":
                yield Goal(workload.name, metric, KAFKA, 0.5)
            elif metric == MB:
                yield Goal(workload.name, metric, KAFKA, 0.2)


GOALS = tuple(_goals())
