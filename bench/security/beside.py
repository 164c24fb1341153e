"""TLS beside Apache Kafka with the same TLS, and beside a node without: the workloads and goals.

The load encrypts and decrypts as much as the server, on the same cores, so messages/s say as much
about the load as about the server; the server's processor time says what the server does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bench.peers.goals import KAFKA, Goal
from bench.peers.kafka_wire import durability
from bench.peers.rounds import Kind
from bench.peers.workloads import CPU, RATE, WORKLOADS, Workload

from .servers import PLAIN, TLS_NAME, KafkaTls, PenstockPlain, PenstockTls

KINDS: tuple[Kind, ...] = (PenstockTls, KafkaTls, PenstockPlain)
SECTION = f"TLS ({TLS_NAME}); 1 copy, {durability(fsync=False)}"
SINGLE = "publish 100 B, one per request, 64 connections, acks=1"
NAMES = (
    "end to end, 1,000 messages/s of 100 B, one per request",
    "publish 100 B, 256 KiB batches, 8 connections, acks=1",
    "publish 1 KB, 256 KiB batches, 8 connections, acks=1",
    SINGLE,
    "consume 1 KB from cache",
)
OF_PLAIN_MIN = 0.6
"""Of the small requests that a node answers without TLS."""

_by_name = {workload.name: workload for workload in WORKLOADS}
CHOSEN: tuple[Workload, ...] = tuple(
    replace(_by_name[name], section=SECTION, copies_in_title=True) for name in NAMES
)


def _goals() -> Iterator[Goal]:
    for workload in CHOSEN:
        for metric in workload.metrics:
            if metric in (RATE, CPU):
                yield Goal(workload.name, metric, KAFKA, 1.0)
    yield Goal(SINGLE, RATE, PLAIN, OF_PLAIN_MIN)


GOALS = tuple(_goals())
