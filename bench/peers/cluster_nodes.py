"""Three nodes of one kind, started afresh for a round, and the load upon their leaders.

Both kinds run with their defaults and with the settings of `tests.support.cluster`, which are the
same for both: three copies of everything, of which two must have a write. Apache Kafka runs in the
JVM options that its own start script gives, on folders that its own storage tool has formatted.

Nothing is pinned: nodes and load share all cores. One thread owns all of it.
"""

from __future__ import annotations

import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from bench.cluster.nodes import NODES, address, addresses, cpu_seconds
from bench.cluster.writers import ACKS_ALL, NS, RawWriter
from tests.support.cluster import Cluster
from tests.support.cluster_nodes import ClusterNode, KafkaClusterNode, PenstockClusterNode
from tests.support.reference import java_command
from tests.support.waiting import eventually

from penstock.base.errors import ErrorCode
from penstock.cli.bench.raw_produce import ProduceLoad
from penstock.cli.bench.requests import batch_of
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

from .kafka_server import JVM_OPTIONS
from .wire import PeerError

CREATE_TOPICS_VERSION = 5
START_S_MAX = 180.0
FORMAT_S_MAX = 60.0
POLL_S = 0.01
TURN_S_MAX = 0.1
FIRST_TOPIC = "first"
FIRST_WRITES_PER_S = 100.0
MADE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


class StockKafkaNode(KafkaClusterNode):
    """A node as Apache Kafka's own scripts start it."""

    HEAP_MB: ClassVar[int] = 1024
    OPTIONS: ClassVar[tuple[str, ...]] = JVM_OPTIONS

    def begin_format(self) -> subprocess.Popen[bytes]:
        """Has the storage tool write what a first start needs, in the newest version."""
        cluster_id = self.settings["cluster.id"]
        self.command()
        (self.data_dir / "meta.properties").unlink()
        config = str(self.root / "server.properties")
        tool = java_command("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", config)
        with self.log_path.open("ab") as log:
            return subprocess.Popen(tool, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


class MeasuredCluster(Cluster):
    """Three nodes; entering the `with` starts nothing, so that `start_timed` can tell the time."""

    KINDS: ClassVar[Mapping[str, type[ClusterNode]]] = {
        "penstock": PenstockClusterNode,
        "kafka": StockKafkaNode,
    }

    def __init__(self, kind: str, root: Path) -> None:
        super().__init__(NODES, root, kind=kind)

    def __enter__(self) -> MeasuredCluster:
        return self

    def start_timed(self) -> float:
        """The seconds from the start of the processes until a topic was made and a write to it
        was acknowledged by all copies.
        """
        self._format()
        began = time.perf_counter_ns()
        for node in self.nodes.values():
            node.launch()
        eventually(self._first_topic, START_S_MAX, POLL_S)
        writer = RawWriter(addresses(self), FIRST_TOPIC, 1, FIRST_WRITES_PER_S)
        writer.start()
        eventually(lambda: writer.acks, START_S_MAX, POLL_S)
        writer.stop()
        self.wait_complete()
        return (writer.acks[0].acked_ns - began) / NS

    def _format(self) -> None:
        stock = [node for node in self.nodes.values() if isinstance(node, StockKafkaNode)]
        for node, tool in [(node, node.begin_format()) for node in stock]:
            if tool.wait(FORMAT_S_MAX):
                raise PeerError(f"Kafka's storage tool failed:\n{node.log_tail()}")

    def _first_topic(self) -> bool:
        died = [node for node in self.nodes.values() if not node.running]
        if died:
            raise PeerError(f"node {died[0].node_id} died while starting:\n{died[0].log_tail()}")
        topic = CreatableTopic(name=FIRST_TOPIC, num_partitions=1, replication_factor=NODES)
        answer = self.ask(CreateTopicsRequest(topics=[topic]), CREATE_TOPICS_VERSION)
        return answer.topics[0].error_code in MADE

    def rss_bytes(self) -> int:
        """Resident memory of all nodes."""
        return sum(node.rss_bytes() for node in self.nodes.values())


class Throughput(NamedTuple):
    """What all leaders together acknowledged, and what it cost all nodes."""

    messages_per_s: float
    cpu_s_per_million: float


class LeadersLoad:
    """The same request again and again to the leader of each partition: a `ProduceLoad` for each,
    all driven by the caller's thread.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        size: int,
        messages: int,
        connections: int,
        depth: int,
    ) -> None:
        self._cluster = cluster
        self._messages = messages
        batch = batch_of(size, messages)
        leaders = [state.leader for _, state in sorted(cluster.partitions(topic).items())]
        self._loads = [
            ProduceLoad(
                address(cluster, leader),
                topic,
                [partition],
                batch,
                connections=share,
                depth=depth,
                acks=ACKS_ALL,
            )
            for partition, (leader, share) in enumerate(
                zip(leaders, shares(connections, len(leaders)), strict=True)
            )
        ]

    def run(self, seconds: float) -> Throughput:
        """Loads for so long."""
        for load in self._loads:
            load.requests = 0
        spent = cpu_seconds(self._cluster)
        began = time.perf_counter()
        deadline = began + seconds
        while time.perf_counter() < deadline:
            for load in select.select(self._loads, [], [], TURN_S_MAX)[0]:
                load.turn()
        took = time.perf_counter() - began
        spent = cpu_seconds(self._cluster) - spent
        messages = self._messages * sum(load.requests for load in self._loads)
        if not messages:
            raise PeerError(f"nothing was acknowledged in {took:.1f} s of load upon three nodes")
        return Throughput(messages / took, spent / (messages / 1e6))

    def finish(self) -> None:
        """Waits for what is in flight, then closes."""
        for load in self._loads:
            load.finish()


def shares(whole: int, parts: int) -> Sequence[int]:
    """`whole` in `parts` that differ by one at most, the larger first."""
    return [(whole + parts - 1 - part) // parts for part in range(parts)]
