"""Three nodes, three copies, acks=all: what Penstock and Apache Kafka do in this form.

`measure` is one round of one kind: a fresh cluster is started, warmed up, loaded, has nodes killed,
and is gone. The order within a round is a choice: acknowledgement times come before the load that
writes gigabytes, whose way to the disk would be felt in them; the kills come last. Kills are one of
each role per round, so that a round of Apache Kafka, which waits nine seconds for a dead broker,
stays short; several rounds give several kills.

Both kinds keep their own defaults, those for noticing a dead node too. Neither has messages on
disk when it acknowledges them: they are in the memory of at least two nodes.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from bench.cluster import going
from bench.cluster.nodes import address, addresses, place_topic, prefer_leaders, say
from bench.cluster.paced import PacedProduce
from bench.cluster.writers import ACKS_ALL, MESSAGE_BYTES, RawWriter
from tests.support.waiting import CALL_SECONDS_MAX

from .cluster_nodes import LeadersLoad, MeasuredCluster
from .kafka_server import KafkaServer
from .penstock_server import PenstockServer
from .rounds import MB as MEGABYTE
from .rounds import settle
from .sockets import quiet
from .workloads import (
    CPU,
    DEPTH_AT_BATCHES,
    END_TO_END,
    LARGE_BATCH_BYTES,
    MB,
    RATE,
    SECONDS,
    Figures,
    Metric,
    at_a_rate,
)

REPLICATION = "3 nodes, 3 copies, min.insync.replicas=2, acks=all"
DURABILITY = "in memory of at least two nodes when acknowledged, no fsync"

LEADERS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
"""The replicas of three partitions: each node leads one and follows two."""
RATES = (1_000, 10_000)
WARM_UP_S = {"penstock": PenstockServer.warm_up_s, "kafka": KafkaServer.warm_up_s}
LOAD_WARM_UP_TIMES, LOAD_TIMES = 2, 3
PACED_WARM_UP_TIMES, PACED_TIMES = 1, 5
"""And how often on each load, and before it: a pause of the machine must not be a percent."""
PACED_CONNECTIONS = 64
IDLE_S = 2.0
TOPIC = "load"


class Shape(NamedTuple):
    """A load at full speed: requests of so many messages, of which each connection has `depth`
    under way.
    """

    how: str
    messages: int
    connections: int
    depth: int


LARGE = Shape("256 KiB batches", LARGE_BATCH_BYTES // MESSAGE_BYTES, 8, DEPTH_AT_BATCHES[8])
SINGLE = Shape("one per request", 1, 64, 1)


class Part(NamedTuple):
    """Some figures of a round; `goals` are Penstock's shares of Apache Kafka's, by key."""

    name: str
    metrics: tuple[Metric, ...]
    goals: Mapping[str, float]


def _full_speed(shape: Shape) -> Part:
    name = f"three nodes: publish 100 B, {shape.how}, {shape.connections} connections"
    return Part(name, (RATE, CPU), {RATE.key: 1.0, CPU.key: 1.0})


def _at(rate: int) -> Part:
    name = f"three nodes: acknowledgement at {rate:,} messages/s, one per request"
    return Part(name, END_TO_END, {"p99_ms": 1.0})


def _single(name: str, metric: Metric, goal: float | None = None) -> Part:
    return Part(f"three nodes: {name}", (metric,), {} if goal is None else {metric.key: goal})


AT_FULL_SPEED = {shape: _full_speed(shape) for shape in (SINGLE, LARGE)}
AT_RATES = {rate: _at(rate) for rate in RATES}
LEADER_KILL = _single("kill -9 of a partition leader, until all is acknowledged", SECONDS, 0.2)
CONTROLLER_KILL = _single("kill -9 of the controller's node, likewise", SECONDS, 0.2)
START = _single("start until a topic is made and written", SECONDS, 0.2)
IDLE = _single("memory of all nodes, idle", MB, 0.2)
LOADED = _single("memory of all nodes, after the loads", MB)
PARTS = (
    *AT_FULL_SPEED.values(),
    *AT_RATES.values(),
    LEADER_KILL,
    CONTROLLER_KILL,
    START,
    IDLE,
    LOADED,
)

Found = dict[str, Figures]
"""What was measured, by the names of the parts."""


def measure(kind: str, folder: Path, seconds: float) -> Found:
    """One round; `seconds` is the time of a case. What it wrote below `folder` is removed."""
    root = folder / f"{kind}-cluster"
    try:
        with MeasuredCluster(kind, root) as cluster:
            try:
                return _round(cluster, seconds, WARM_UP_S[kind])
            except BaseException:
                say(cluster.log_tails())
                raise
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _round(cluster: MeasuredCluster, seconds: float, warm_up_s: float) -> Found:
    found = {START.name: {SECONDS.key: cluster.start_timed()}}
    time.sleep(IDLE_S)
    found[IDLE.name] = {MB.key: cluster.rss_bytes() / MEGABYTE}
    place_topic(cluster, TOPIC, LEADERS)
    for shape in AT_FULL_SPEED:
        _loaded(cluster, shape, warm_up_s / len(AT_FULL_SPEED) / (LOAD_WARM_UP_TIMES + LOAD_TIMES))
    settle()
    for rate, part in AT_RATES.items():
        found[part.name] = _paced(cluster, rate, seconds)
    for shape, part in AT_FULL_SPEED.items():
        found[part.name] = _loaded(cluster, shape, seconds)
    found[LOADED.name] = {MB.key: cluster.rss_bytes() / MEGABYTE}
    # What a killed node has to check when it comes back is no part of the pause.
    cluster.admin().delete_topics([TOPIC])[TOPIC].result(CALL_SECONDS_MAX)
    return found | _kills(cluster)


def _loaded(cluster: MeasuredCluster, shape: Shape, seconds: float) -> Figures:
    """Full speed upon all three leaders, after a warm-up."""
    load = LeadersLoad(
        cluster,
        TOPIC,
        size=MESSAGE_BYTES,
        messages=shape.messages,
        connections=shape.connections,
        depth=shape.depth,
    )
    with quiet():
        load.run(seconds * LOAD_WARM_UP_TIMES)
        found = load.run(seconds * LOAD_TIMES)
    load.finish()
    return {RATE.key: found.messages_per_s, CPU.key: found.cpu_s_per_million}


def _paced(cluster: MeasuredCluster, rate: int, seconds: float) -> Figures:
    """Acknowledgement times, from the moment that each message was due. Many connections take
    turns: a broker of Apache Kafka's handles one request of a connection at a time, and so an
    acknowledgement of a millisecond would keep one connection below 1,000 messages/s.
    """
    leaders = [(address(cluster, replicas[0]), n) for n, replicas in enumerate(LEADERS)]
    ways = list(islice(cycle(leaders), PACED_CONNECTIONS))
    paced = PacedProduce(ways, TOPIC, ACKS_ALL)
    with quiet():
        paced.run(rate, seconds * PACED_WARM_UP_TIMES)
        began = time.perf_counter()
        latencies = paced.run(rate, seconds * PACED_TIMES)
        took = time.perf_counter() - began
    paced.close()
    return at_a_rate(rate, len(latencies) / took, latencies)


def _kills(cluster: MeasuredCluster) -> Found:
    """Of each role one: the seconds from the kill until all partitions acknowledge what is written
    after it, to a writer that looks for the new leader all the time.
    """
    cluster.make_topic("kills", going.PARTITIONS)
    writer = RawWriter(addresses(cluster), "kills", going.PARTITIONS, going.PER_SECOND)
    writers = {"kills": writer}
    writer.start()
    found = {}
    try:
        for part, victim_of in (
            (LEADER_KILL, going.partition_leader),
            (CONTROLLER_KILL, going.metadata_leader),
        ):
            cluster.start_node(*(set(cluster.nodes) - set(cluster.running)))
            prefer_leaders(cluster, "kills")
            going.settle(writers)
            pause_s = going.kill(cluster, victim_of(cluster, 0), writers)["kills"]
            found[part.name] = {SECONDS.key: pause_s}
    finally:
        writer.stop()
    return found
