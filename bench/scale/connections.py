"""Connections: pairs of producers and consumers at a low rate, and idle ones, as many as may be.

The limit of open files of a process is what it is (`ulimit -Hn`), for nodes and load alike. Where
one node may not hold as many connections as are wanted, several nodes of one cluster share them,
and the row says how many; so do several load processes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.support.cluster import Cluster
from tests.support.process import BrokerProcess

from penstock.node.descriptors import divided

from .calls import Caller, ScaleError, cluster_metadata, topic_names
from .nodes import SETTINGS, SPARE_FILES, allow_files, busy_cores, rss_mb, single_node

ROUNDS = 3
"""Messages of each producer."""
SPARE_S = 2.0
"""How long consumers wait for the last messages."""
Place = tuple[str, int, str, int]
"""Host, port, topic and partition of a connection."""


class LoadProcess:
    """One process of `bench.scale.load`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.scale.load"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, do: str, **order: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **order}) + "\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ScaleError("a load process has died")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise ScaleError(str(answer["failed"]))
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def loads(count: int) -> Iterator[list[LoadProcess]]:
    with ExitStack() as stack:
        started = []
        for _ in range(count):
            load = LoadProcess()
            stack.callback(load.close)
            started.append(load)
        yield started


@contextmanager
def nodes_for(root: Path, connections: int) -> Iterator[Sequence[BrokerProcess]]:
    """As many nodes as it takes to hold so many connections."""
    count = -(-connections // (divided(allow_files()).connections - SPARE_FILES))
    if count == 1:
        with single_node(root) as node:
            yield [node]
        return
    with Cluster(count, root, SETTINGS) as cluster:
        yield list(cluster.nodes.values())


def connect(load: LoadProcess, places: Sequence[Place], first: int) -> float:
    load.tell("connect", places=places, first=first)
    return float(load.hear()["seconds"])


def idle(root: Path, connections: int, seconds: float) -> dict[str, Any]:
    """Connections that have said hello and then keep quiet."""
    found: dict[str, Any] = {"connections": connections}
    with nodes_for(root, connections) as nodes:
        empty = sum(node.rss_bytes() for node in nodes)
        per_load = allow_files() - SPARE_FILES
        with loads(-(-connections // per_load)) as started:
            took = 0.0
            for number, load in enumerate(started):
                ours = range(number * per_load, min(connections, (number + 1) * per_load))
                to = [nodes[i % len(nodes)] for i in ours]
                took += connect(load, [(n.host, n.port, "", 0) for n in to], ours.start)
            found |= {"nodes": len(nodes), "load_processes": len(started)}
            found["connects_per_s"] = round(connections / took)
            found["idle_cores"] = busy_cores(nodes, seconds)
            found["rss_mb"] = round(sum(rss_mb(node) for node in nodes), 1)
            held = sum(node.rss_bytes() for node in nodes)
            found["bytes_each"] = (held - empty) // connections
            found |= _sockets()
    return found


def _sockets() -> dict[str, Any]:
    """What the kernel says of all TCP sockets of this machine."""
    for line in Path("/proc/net/sockstat").read_text().splitlines():
        if line.startswith("TCP:"):
            fields = line.split()
            return {"tcp_sockets": int(fields[fields.index("alloc") + 1])}
    return {}


def active(root: Path, pairs: int, seconds: float) -> dict[str, Any]:
    """`pairs` producers, each with a partition of its own, and as many consumers, one for each; a
    message of each producer every `seconds`.
    """
    found: dict[str, Any] = {"producers": pairs, "consumers": pairs}
    with nodes_for(root, 2 * pairs) as nodes, loads(2) as started:
        places = _places(nodes, pairs)
        producers, consumers = started
        empty = sum(node.rss_bytes() for node in nodes)
        connect(producers, places, 0)
        connect(consumers, places, pairs)
        found["nodes"] = len(nodes)
        consumers.tell("begin")
        consumers.hear()
        found["waiting_cores"] = busy_cores(nodes, seconds)
        before = sum(node.cpu_seconds() for node in nodes)
        found |= _round(producers, consumers, seconds, ROUNDS)
        cores = sum(node.cpu_seconds() for node in nodes) - before
        found["cores"] = round(cores / (ROUNDS * seconds + SPARE_S), 4)
        found["rss_mb"] = round(sum(rss_mb(node) for node in nodes), 1)
        held = sum(node.rss_bytes() for node in nodes)
        found["bytes_each_pair"] = (held - empty) // pairs
    return found


def _round(
    producers: LoadProcess, consumers: LoadProcess, interval_s: float, messages: int
) -> dict[str, Any]:
    """Each producer publishes `messages`, evenly spread, and its consumer reads them."""
    seconds = messages * interval_s
    consumers.tell("consume", seconds=seconds + SPARE_S)
    producers.tell("produce", interval_s=interval_s, seconds=seconds)
    written, read = producers.hear(), consumers.hear()
    found = {"messages_per_s": round(written["messages"] / seconds, 1)}
    found |= {"sent": written["messages"], "skipped": written["skipped"]}
    found["received"] = read["messages"]
    found |= {f"ack_{name}": written[name] for name in ("p50_ms", "p99_ms")}
    return found | {f"end_to_end_{k}": v for k, v in read.items() if k != "messages"}


def _places(nodes: Sequence[BrokerProcess], partitions: int) -> list[Place]:
    """Where each partition's leader listens; a message lies in each, so that its log is open."""
    [topic] = topic_names(1)
    with Caller((nodes[0].host, nodes[0].port)) as caller:
        caller.create([topic], partitions)
        told = cluster_metadata(caller.metadata([topic]))
    where = {broker.node_id: (broker.host, broker.port) for broker in told.brokers}
    found = sorted((p.partition_index, p.leader_id) for p in told.topics[0].partitions)
    for leader, there in where.items():
        with Caller(there) as caller:
            caller.publish_each([topic], [index for index, led_by in found if led_by == leader])
    return [(*where[leader], topic, partition) for partition, leader in found]
