"""Three nodes, three copies, acks=all: what Penstock and Apache Kafka do in this form.

`measure` is one round of one kind: a fresh cluster is started, loaded, has nodes killed, and is
gone. The order within a round is a choice: acknowledgement times come before the load that writes
gigabytes, whose way to the disk would be felt in them; the kills come last. Kills are one of each
role per round, so that a round of Apache Kafka, which waits nine seconds for a dead broker, stays
short; several rounds give several kills.

Both kinds keep their own defaults, those for noticing a dead node too. Neither has messages on
disk when it acknowledges them: they are in the memory of at least two nodes.
"""

from __future__ import annotations

import shutil
import time
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from bench.cluster import going
from bench.cluster.nodes import address, addresses, place_topic, prefer_leaders, say
from bench.cluster.paced import PacedProduce
from bench.cluster.writers import ACKS_ALL, MESSAGE_BYTES, RawWriter
from tests.support import reference
from tests.support.waiting import CALL_SECONDS_MAX

from penstock.cli.bench.report import MB, percentiles

from .cluster_nodes import LeadersLoad, MeasuredCluster
from .sockets import quiet
from .workloads import DEPTH_AT_BATCHES, LARGE_BATCH_BYTES

KINDS = ("penstock", "kafka")
REPLICATION = "3 nodes, 3 copies, min.insync.replicas=2, acks=all"
DURABILITY = "in memory of at least two nodes when acknowledged, no fsync"

LEADERS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
"""The replicas of three partitions: each node leads one and follows two."""
RATES = {"1k": 1_000.0, "10k": 10_000.0}
WARM_UP_TIMES = 6
"""How often the time of a case is spent on warming up the nodes; a JVM compiles then."""
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

    name: str
    messages: int
    connections: int
    depth: int


LARGE = Shape("large", LARGE_BATCH_BYTES // MESSAGE_BYTES, 8, DEPTH_AT_BATCHES[8])
SINGLE = Shape("single", 1, 64, 1)


class Measure(NamedTuple):
    """One figure of a round; `goal` is Penstock's share of Apache Kafka's figure."""

    key: str
    label: str
    unit: str
    higher_is_better: bool
    goal: float | None


def _lower(key: str, label: str, unit: str, goal: float | None = None) -> Measure:
    return Measure(key, label, unit, False, goal)


def _latency(name: str, label: str) -> tuple[Measure, ...]:
    return tuple(
        _lower(f"paced_{name}_{figure}_ms", f"acknowledgement at {label}, {shown}", "ms", goal)
        for figure, shown, goal in (
            ("p50", "p50", None),
            ("p99", "p99", 1.0),
            ("p999", "p99.9", None),
        )
    )


MEASURES: tuple[Measure, ...] = (
    Measure(
        "large_per_s", "publish 100 B in 256 KiB batches, 8 connections", "messages/s", True, 1.0
    ),
    _lower("large_cpu_s_per_million", "CPU of all nodes, 256 KiB batches", "s per million", 1.0),
    Measure("single_per_s", "publish 100 B one by one, 64 connections", "messages/s", True, 1.0),
    _lower("single_cpu_s_per_million", "CPU of all nodes, one by one", "s per million", 1.0),
    *_latency("1k", "1,000 messages/s"),
    *_latency("10k", "10,000 messages/s"),
    _lower("leader_pause_s", "kill -9 of a partition leader, until all is acknowledged", "s", 0.2),
    _lower("controller_pause_s", "kill -9 of the controller's node, likewise", "s", 0.2),
    _lower("start_s", "start until a topic is made and written", "s", 0.2),
    _lower("idle_mb", "memory of all nodes, idle", "MB", 0.2),
    _lower("loaded_mb", "memory of all nodes, after the loads", "MB"),
)


def missing(kind: str) -> str | None:
    """Why `kind` cannot run here, or None."""
    return reference.missing() if kind == "kafka" else None


def measure(kind: str, folder: Path, seconds: float) -> dict[str, float]:
    """One round; `seconds` is the time of a case. What it wrote below `folder` is removed."""
    root = folder / f"{kind}-cluster"
    try:
        with MeasuredCluster(kind, root) as cluster:
            try:
                return _round(cluster, seconds)
            except BaseException:
                say(cluster.log_tails())
                raise
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _round(cluster: MeasuredCluster, seconds: float) -> dict[str, float]:
    found = {"start_s": cluster.start_timed()}
    time.sleep(IDLE_S)
    found["idle_mb"] = cluster.rss_bytes() / MB
    place_topic(cluster, TOPIC, LEADERS)
    _loaded(cluster, SINGLE, seconds * WARM_UP_TIMES / (LOAD_WARM_UP_TIMES + LOAD_TIMES))
    for name, rate in RATES.items():
        found |= _paced(cluster, name, rate, seconds)
    for shape in (SINGLE, LARGE):
        found |= _loaded(cluster, shape, seconds)
    found["loaded_mb"] = cluster.rss_bytes() / MB
    # What a killed node has to check when it comes back is no part of the pause.
    cluster.admin().delete_topics([TOPIC])[TOPIC].result(CALL_SECONDS_MAX)
    return found | _kills(cluster)


def _loaded(cluster: MeasuredCluster, shape: Shape, seconds: float) -> dict[str, float]:
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
    return {
        f"{shape.name}_per_s": found.messages_per_s,
        f"{shape.name}_cpu_s_per_million": found.cpu_s_per_million,
    }


def _paced(
    cluster: MeasuredCluster, name: str, per_second: float, seconds: float
) -> dict[str, float]:
    """Acknowledgement times, from the moment that each message was due. Many connections take
    turns: a broker of Apache Kafka's handles one request of a connection at a time, and so an
    acknowledgement of a millisecond would keep one connection below 1,000 messages/s.
    """
    leaders = [(address(cluster, replicas[0]), n) for n, replicas in enumerate(LEADERS)]
    ways = list(islice(cycle(leaders), PACED_CONNECTIONS))
    paced = PacedProduce(ways, TOPIC, ACKS_ALL)
    with quiet():
        paced.run(per_second, seconds * PACED_WARM_UP_TIMES)
        times = percentiles(paced.run(per_second, seconds * PACED_TIMES))
    paced.close()
    return {f"paced_{name}_{figure}": value for figure, value in times.items()}


def _kills(cluster: MeasuredCluster) -> dict[str, float]:
    """Of each role one: the seconds from the kill until all partitions acknowledge what is written
    after it, to a writer that looks for the new leader all the time.
    """
    cluster.make_topic("kills", going.PARTITIONS)
    writer = RawWriter(addresses(cluster), "kills", going.PARTITIONS, going.PER_SECOND)
    writers = {"kills": writer}
    writer.start()
    found = {}
    try:
        for key, victim_of in (
            ("leader_pause_s", going.partition_leader),
            ("controller_pause_s", going.metadata_leader),
        ):
            cluster.start_node(*(set(cluster.nodes) - set(cluster.running)))
            prefer_leaders(cluster, "kills")
            going.settle(writers)
            found[key] = going.kill(cluster, victim_of(cluster, 0), writers)["kills"]
    finally:
        writer.stop()
    return found
