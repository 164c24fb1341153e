"""The catalogue: what is measured, the same for every peer.

A workload is a row of `WORKLOADS`: a name, the figures that it gives, and a function that loads a
server and returns them. It makes its own topic and removes it. What a kind of server cannot do, it
says instead of running (`impossible`).

Limits: topics that are read are filled for a limited time and to a limited size, whatever the
server's speed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, product
from typing import NamedTuple

from penstock.cli.bench.report import percentiles
from penstock.log.limits import FRESH_S
from penstock.wire.compression import Compression

from .load import Consumed, Published, consume, publish
from .pacing import paced
from .server import Server

LARGE_BATCH_BYTES = 256 * 1024
"""Of messages, in one request."""
SIZES = {100: "100 B", 1_000: "1 KB", 10_000: "10 KB"}
CONNECTIONS = (1, 8, 64, 512)
DEPTH_AT_BATCHES = {1: 4, 8: 2, 64: 1, 512: 1}
"""Requests under way on each connection; with one message per request it is always one."""
FILL_BYTES = 512 * 1024 * 1024
FAN_OUT_FILL_BYTES = 64 * 1024 * 1024
FILL_TIMES = 2
CONSUME_TIMES = 4
"""How often the time of a case may be spent on filling and reading."""
CONSUME_S_MIN = 5.0
READ_S_MIN = 1.0
"""A topic that is read in less than this is read again, where the server allows it."""
OLD_S = FRESH_S + 2
"""Penstock sends what was written or read in a shorter time before without checking it again."""
PACED_TIMES = 3
PACED_S_MIN = 4.0
"""At a fixed rate a case lasts so many times as long, and so long at least: a single pause of the
machine must not be a percent of it."""
RATE_KEPT_MIN = 0.95

Figures = dict[str, float]


class Metric(NamedTuple):
    """One figure of a workload, as tables show it."""

    key: str
    label: str
    unit: str
    higher_is_better: bool


RATE = Metric("per_s", "", "messages/s", True)
CPU = Metric("cpu_s_per_million", "server's CPU", "s per million messages", False)
ACK = (
    Metric("ack_p50_ms", "acknowledged, p50", "ms", False),
    Metric("ack_p99_ms", "acknowledged, p99", "ms", False),
)
END_TO_END = (
    Metric("p50_ms", "p50", "ms", False),
    Metric("p99_ms", "p99", "ms", False),
    Metric("p999_ms", "p99.9", "ms", False),
)
SECONDS = Metric("s", "", "s", False)
MB = Metric("mb", "", "MB", False)


@dataclass(frozen=True)
class Workload:
    """`run` gets a server and the seconds of a case; without it, the round itself measures."""

    section: str
    name: str
    metrics: tuple[Metric, ...]
    run: Callable[[Server, float], Figures] | None = None
    fsync: bool = False
    acks: str = "1"
    cold: bool = False
    old: bool = False
    compressed: bool = False
    shares: bool = False
    queues: bool = False
    copies_in_title: bool = False
    """Whether the section says by itself how many copies there are and when they are on disk."""

    def impossible(self, kind: type[Server]) -> str | None:
        """Why there is nothing to measure, or None."""
        if self.fsync and not kind.fsync_before_ack:
            return "cannot sync before it acknowledges"
        if self.acks not in kind.acks:
            return "the same as acks=1"
        if self.cold and kind.in_memory:
            return "keeps everything in memory"
        if self.old and not self.cold and not kind.by_age:
            return "compared for Kafka's protocol only"
        if self.compressed and not kind.compresses:
            return "compared for Kafka's protocol only"
        if self.shares and not kind.shares:
            return "has no share groups"
        if self.queues and not kind.queues:
            return "not compared as a queue"
        return None


_numbers = count(1)


@contextmanager
def a_topic(server: Server, groups: int = 1) -> Iterator[str]:
    """A topic for as long as it is needed. None has the name of one before it, as servers may
    take their time to delete.
    """
    topic, wire = f"load-{next(_numbers)}", server.wire()
    wire.make(topic, groups=groups)
    try:
        yield topic
    finally:
        wire.remove(topic)


# Publishing


def _publish(
    size: int,
    messages: int,
    connections: int,
    depth: int,
    acks: str,
    server: Server,
    seconds: float,
) -> Figures:
    with a_topic(server) as topic:
        done = publish(
            server,
            topic,
            size=size,
            messages=messages,
            connections=connections,
            depth=depth,
            acks=acks,
            seconds=seconds,
        )
    return _of_publishing(done)


def _of_publishing(done: Published) -> Figures:
    times = percentiles(done.latencies_ns)
    return {
        "per_s": done.messages / done.seconds,
        "cpu_s_per_million": done.cpu_s * 1e6 / done.messages,
        "ack_p50_ms": times["p50_ms"],
        "ack_p99_ms": times["p99_ms"],
    }


def _publishing(
    size: int, batches: bool, connections: int, acks: str, *, fsync: bool = False
) -> Workload:
    messages = max(1, LARGE_BATCH_BYTES // size) if batches else 1
    depth = DEPTH_AT_BATCHES[connections] if batches else 1
    how = "256 KiB batches" if batches else "one per request"
    level = "fsync before ack" if fsync else f"acks={acks}"
    plural = "connection" if connections == 1 else "connections"
    metrics: tuple[Metric, ...] = (RATE,)
    if connections == (8 if batches else 64) and acks == "1" and not fsync:
        metrics += (CPU,)
    if not batches and connections == 1:
        metrics += ACK
    return Workload(
        "publish, fsync before ack" if fsync else f"publish, acks={acks}",
        f"publish {SIZES[size]}, {how}, {connections} {plural}, {level}",
        metrics,
        partial(_publish, size, messages, connections, depth, acks),
        fsync=fsync,
        acks=acks,
    )


def _publish_compressed(compression: Compression, server: Server, seconds: float) -> Figures:
    server.compression = compression
    try:
        return _publish(1_000, LARGE_BATCH_BYTES // 1_000, 8, 2, "1", server, seconds)
    finally:
        server.compression = Compression.NONE


def _compressed(compression: Compression) -> Workload:
    return Workload(
        "publish, compressed",
        f"publish 1 KB of JSON, 256 KiB batches in {compression.name.lower()}, 8 connections",
        (RATE, CPU),
        partial(_publish_compressed, compression),
        compressed=True,
    )


# Consuming


def _consume(
    size: int, groups: int, fill_bytes: int, cold: bool, old: bool, server: Server, seconds: float
) -> Figures:
    with a_topic(server, groups) as topic:
        per_request = LARGE_BATCH_BYTES // size
        filled = publish(
            server,
            topic,
            size=size,
            messages=per_request,
            connections=8,
            depth=2,
            acks="1",
            seconds=FILL_TIMES * seconds,
            requests_max=fill_bytes // LARGE_BATCH_BYTES,
        )
        if old and server.by_age:
            time.sleep(OLD_S)
        if cold:
            drop_cache(server)
        limit_s = max(CONSUME_S_MIN, CONSUME_TIMES * seconds)
        read = partial(
            consume, server, topic, groups=groups, expected=filled.messages, seconds=limit_s
        )
        done = read()
        # What is read again is no longer cold, and what was read a moment ago no longer old.
        once = cold or old or not server.reads_again
        while not once and done.seconds < READ_S_MIN:
            done = done.and_then(read())
    return _of_consuming(done, size)


def _of_consuming(done: Consumed, size: int) -> Figures:
    return {
        "per_s": done.messages / done.seconds,
        "mb_per_s": done.messages * size / done.seconds / 1e6,
        "cpu_s_per_million": done.cpu_s * 1e6 / done.messages,
    }


def drop_cache(server: Server) -> None:
    """Has what the server wrote on disk and no longer in the page cache."""
    for folder, _, names in os.walk(server.folder):
        for name in names:
            try:
                fd = os.open(os.path.join(folder, name), os.O_RDONLY)
            except OSError:
                continue  # a file that the server has just removed, or a socket
            try:
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


def _consuming(
    name: str,
    size: int,
    *,
    groups: int = 1,
    fill_bytes: int = FILL_BYTES,
    cold: bool = False,
    old: bool = False,
) -> Workload:
    run = partial(_consume, size, groups, fill_bytes, cold, old)
    return Workload("consume", name, (RATE, CPU), run, cold=cold, old=old)


# Latency at a fixed rate


def _paced(rate: int, messages_per_request: int, server: Server, seconds: float) -> Figures:
    with a_topic(server) as topic:
        done = paced(
            server,
            topic,
            size=100,
            rate=rate,
            messages_per_request=messages_per_request,
            seconds=max(PACED_S_MIN, PACED_TIMES * seconds),
        )
    return at_a_rate(rate, done.reached_per_s, done.latencies_ns)


def at_a_rate(rate: int, reached_per_s: float, latencies_ns: list[int]) -> Figures:
    """Times mean something only where the rate was kept: else they are those of a queue that grew
    for as long as the case lasted.
    """
    kept = reached_per_s >= RATE_KEPT_MIN * rate
    figures = {"reached_per_s": reached_per_s, "kept": float(kept)}
    return figures | percentiles(latencies_ns) if latencies_ns else figures


def _latency(rate: int, messages_per_request: int) -> Workload:
    n = messages_per_request
    how = "one per request" if n == 1 else f"{n:,} per request"
    name = f"end to end, {rate:,} messages/s of 100 B, {how}"
    return Workload("end to end", name, END_TO_END, partial(_paced, rate, n))


START = Workload("start and memory", "start until the first answer", (SECONDS,))
IDLE = Workload("start and memory", "memory, idle for 2 s after the start", (MB,))
LOADED = Workload("start and memory", "memory, the most under all loads", (MB,))

WORKLOADS: tuple[Workload, ...] = (
    START,
    IDLE,
    # First, since what the others write takes its way to the disk for a while.
    _latency(1_000, 1),
    _latency(10_000, 1),
    _latency(10_000, 10),
    _latency(100_000, 100),
    _latency(1_000_000, 1_000),
    *(
        _publishing(size, batches, connections, acks)
        for acks, batches, size, connections in product(
            ("1", "all"), (True, False), SIZES, CONNECTIONS
        )
    ),
    *(_compressed(compression) for compression in Compression if compression),
    _consuming("consume 100 B from cache", 100),
    _consuming("consume 1 KB from cache", 1_000),
    _consuming(f"consume 1 KB from cache, {OLD_S:g} s old", 1_000, old=True),
    _consuming(f"consume 1 KB from disk (cold), {OLD_S:g} s old", 1_000, cold=True, old=True),
    *(
        _consuming(
            f"fan-out of 1 KB to {groups} group{'s' if groups > 1 else ''}",
            1_000,
            groups=groups,
            fill_bytes=FAN_OUT_FILL_BYTES,
        )
        for groups in (1, 5, 20)
    ),
    LOADED,
    _publishing(100, False, 1, "1", fsync=True),
    _publishing(100, False, 64, "1", fsync=True),
    _publishing(100, True, 8, "1", fsync=True),
    _publishing(1_000, True, 8, "1", fsync=True),
)
