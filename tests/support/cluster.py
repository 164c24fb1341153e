"""A cluster of real node processes on this machine: start, faults, what it says of itself.

    with Cluster(3, tmp_path) as cluster:
        cluster.make_topic("t", partitions=6)
        cluster.kill(cluster.leader("t", 0))

Node ids begin at 1. Every node has its folder below `root` with its TOML file, its data and what it
has written to stdout and stderr. `start` launches all nodes before it waits, since a quorum needs
several. Whatever happens, no process outlives the test: leaving the `with` kills all of them, and
so does the end of the interpreter. One thread owns the object.

`each` holds settings of single nodes, by id. `kind="kafka"` makes the same cluster of Apache
Kafka's processes. With a `lock` everything needs a login, and rights.
"""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

from .cluster_locked import Lock
from .cluster_nodes import ClusterNode, KafkaClusterNode, PenstockClusterNode
from .features import GROUPS, enable_feature
from .helpers import QUIET
from .places import Loopback, Network
from .raw import Closed, RawClient
from .reference import random_id
from .waiting import CALL_SECONDS_MAX, eventually

METADATA_TOPIC = "__cluster_metadata"
METADATA_VERSION = 12
QUORUM_VERSION = 0
ANSWER_SECONDS_MAX = 5.0

# Three copies, of which two must have a write; topics are made by the tests, on purpose.
SETTINGS = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}


class PartitionState(NamedTuple):
    """One partition as a node's metadata shows it; no leader is -1."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Cluster:
    """`count` nodes that found a cluster, and any that join it later."""

    KINDS: ClassVar[Mapping[str, type[ClusterNode]]] = {
        "penstock": PenstockClusterNode,
        "kafka": KafkaClusterNode,
    }

    def __init__(
        self,
        count: int,
        root: Path,
        settings: Mapping[str, str] | None = None,
        *,
        each: Mapping[int, Mapping[str, str]] | None = None,
        kind: str = "penstock",
        network: Network | None = None,
        lock: Lock | None = None,
    ) -> None:
        self.root = root
        self.lock = lock
        self.kind = kind
        self.network: Network = network or Loopback()
        self.settings = _few_nodes(count, SETTINGS) | dict(settings or {})
        self.nodes: dict[int, ClusterNode] = {}
        self._cluster_id = random_id()
        self._admin: AdminClient | None = None
        for node_id in range(1, count + 1):
            self._make(node_id, (each or {}).get(node_id, {}))
        voters = ",".join(node.voter for node in self.nodes.values())
        for node in self.nodes.values():
            node.settings["controller.quorum.voters"] = voters
        self.voters = voters
        atexit.register(self.close)

    def _make(self, node_id: int, settings: Mapping[str, str]) -> ClusterNode:
        own = self.settings | dict(settings)
        if self.kind == "kafka":
            own["cluster.id"] = self._cluster_id
        node = self.KINDS[self.kind](node_id, self.root / f"node-{node_id}", own, self.network)
        if self.lock is not None:
            node.settings |= self.lock.settings(node.place, node_id)
        self.nodes[node_id] = node
        return node

    # Life

    def start(self) -> Self:
        """Starts every node that does not run and waits until all of them serve as one cluster."""
        for node in self.nodes.values():
            if not node.running:
                node.launch()
        for node in self.nodes.values():
            node.wait_ready()
        self.wait_complete()
        if self.kind == "kafka":
            enable_feature(self.bootstrap, GROUPS)
        return self

    def add_node(self, settings: Mapping[str, str] | None = None, *, start: bool = True) -> int:
        """A node that joins the running cluster; returns its id."""
        bootstrap = self.bootstrap
        node = self._make(max(self.nodes) + 1, settings or {})
        if self.kind == "kafka":
            node.settings |= {"controller.quorum.voters": self.voters, "process.roles": "broker"}
        else:
            node.settings["controller.quorum.bootstrap.servers"] = bootstrap
        if start:
            node.start()
            self.wait_complete()
        return node.node_id

    def kill(self, *node_ids: int) -> None:
        """SIGKILL."""
        for node_id in node_ids:
            self.nodes[node_id].kill()

    def pause(self, node_id: int) -> None:
        """SIGSTOP."""
        self.nodes[node_id].pause()

    def resume(self, node_id: int) -> None:
        """SIGCONT."""
        self.nodes[node_id].resume()

    def stop(self, node_id: int) -> None:
        """SIGTERM, and a clean end."""
        self.nodes[node_id].stop()

    def start_node(self, *node_ids: int) -> None:
        """Starts nodes that are down, all at once, and waits until each serves."""
        for node_id in node_ids:
            self.nodes[node_id].launch()
        for node_id in node_ids:
            self.nodes[node_id].wait_ready()

    def restart(self, node_id: int) -> None:
        """A clean stop and a start."""
        self.nodes[node_id].restart()

    def remove(self, node_id: int) -> None:
        """Forgets a node that has left the cluster; its process must be gone."""
        assert not self.nodes[node_id].running
        del self.nodes[node_id]

    def stop_all(self) -> None:
        """A clean end of everything at once."""
        running = [node for node in self.nodes.values() if node.running]
        for node in running:
            node.terminate()
        for node in running:
            node.wait_stopped()

    def close(self) -> None:
        """Kills what still runs and takes the network down; may be called twice."""
        for node in self.nodes.values():
            if node.running:
                node.kill()
        self.network.close()
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    # Readings

    @property
    def bootstrap(self) -> str:
        """Every node's address."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def client(self) -> dict[str, str]:
        """What a client of librdkafka needs to work here."""
        login = {} if self.lock is None else self.lock.client
        return {"bootstrap.servers": self.bootstrap, **login}

    @property
    def running(self) -> list[int]:
        """The nodes whose process exists; a paused one counts."""
        return [node.node_id for node in self.nodes.values() if node.running]

    def log_tails(self) -> str:
        """The end of every node's log."""
        return "\n".join(
            f"--- node {node.node_id}\n{node.log_tail()}" for node in self.nodes.values()
        )

    def admin(self) -> AdminClient:
        """One admin client of librdkafka for the cluster's life."""
        if self._admin is None:
            login = {} if self.lock is None else self.lock.admin
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, **login, **QUIET})
        return self._admin

    @contextlib.contextmanager
    def raw(self, node_id: int, seconds: float = CALL_SECONDS_MAX) -> Iterator[RawClient]:
        """A raw connection to one node."""
        node = self.nodes[node_id]
        with self.connect(node.host, node.port, "raw", seconds) as client:
            yield client

    def connect(self, host: str, port: int, client_id: str, seconds: float) -> RawClient:
        """A raw connection as an administrator."""
        if self.lock is not None:
            return self.lock.connect(host, port, client_id, seconds)
        return RawClient(host, port, client_id, seconds)

    def ask(self, request: Any, version: int, node_ids: Iterable[int] = ()) -> Any:
        """The answer of the first node that gives one."""
        errors: list[str] = []
        asked = list(node_ids) or self.running
        # One that is paused must not keep the others from being asked.
        seconds = ANSWER_SECONDS_MAX if len(asked) > 1 else CALL_SECONDS_MAX
        for node_id in asked:
            try:
                with self.raw(node_id, seconds) as client:
                    return client.call(request, version)
            except (OSError, Closed) as error:
                errors.append(f"node {node_id}: {error!r}")
        raise AssertionError(f"no node answers: {'; '.join(errors)}")

    def partitions(
        self, *topics: str, node_ids: Iterable[int] = ()
    ) -> dict[tuple[str, int], PartitionState]:
        """Partitions of topics, or of all, as a node shows them."""
        asked = [MetadataRequestTopic(name=name) for name in topics] if topics else None
        answer = self.ask(MetadataRequest(topics=asked), METADATA_VERSION, node_ids)
        return {
            (topic.name, p.partition_index): PartitionState(
                p.leader_id, p.leader_epoch, tuple(p.replica_nodes), tuple(p.isr_nodes)
            )
            for topic in answer.topics
            for p in topic.partitions
        }

    def leader(self, topic: str, partition: int = 0) -> int:
        """The leader that the cluster shows for a partition; waits until there is one."""

        def known() -> int:
            found = self.partitions(topic).get((topic, partition))
            return found.leader if found is not None and found.leader > 0 else 0

        return eventually(known)

    def _quorum(self, node_ids: Iterable[int] = ()) -> Any:
        """What DescribeQuorum says of the metadata log; None while it says nothing."""
        partitions = [RequestPartitionData(partition_index=0)]
        topics = [RequestTopicData(topic_name=METADATA_TOPIC, partitions=partitions)]
        answer = self.ask(DescribeQuorumRequest(topics=topics), QUORUM_VERSION, node_ids)
        if answer.error_code != 0 or not answer.topics:
            return None
        [state] = answer.topics[0].partitions
        return state if state.error_code == 0 and state.leader_id > 0 else None

    def quorum_leader(self, node_ids: Iterable[int] = ()) -> int:
        """The leader of the metadata quorum; waits until one is known."""
        return int(eventually(lambda: self._quorum(node_ids)).leader_id)

    def metadata_high_watermark(self) -> int:
        """How far the metadata log is committed."""
        return int(eventually(self._quorum).high_watermark)

    # Waiting

    def wait_complete(self, seconds: float = CALL_SECONDS_MAX) -> None:
        """Waits until each running node's metadata shows every running node."""

        def complete() -> bool:
            wanted = set(self.running)
            for node_id in wanted:
                answer = self.ask(MetadataRequest(topics=[]), METADATA_VERSION, [node_id])
                if {broker.node_id for broker in answer.brokers} != wanted:
                    return False
            return True

        eventually(complete, seconds)

    def wait_in_sync(self, *topics: str, seconds: float = CALL_SECONDS_MAX) -> None:
        """Waits until all running nodes agree that each partition is led and all of it in sync."""

        def in_sync() -> bool:
            views = [self.partitions(*topics, node_ids=[node_id]) for node_id in self.running]
            assert views[0], "no such topic"
            for node_id, states in zip(self.running, views, strict=True):
                assert states.keys() == views[0].keys(), f"node {node_id} knows other partitions"
                lagging = {
                    where: state
                    for where, state in states.items()
                    if state.leader < 0
                    or set(state.isr) != set(state.replicas)
                    or state != views[0][where]
                }
                assert not lagging, f"node {node_id}: {lagging}"
            return True

        eventually(in_sync, seconds)

    def make_topic(
        self,
        name: str,
        partitions: int = 1,
        replicas: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Creates a topic and waits until all of it is led and in sync."""
        copies = replicas or min(3, len(self.nodes))
        new = NewTopic(name, partitions, copies, config=dict(config or {}))
        self.admin().create_topics([new])[name].result(CALL_SECONDS_MAX)
        self.wait_in_sync(name)
        return name


def _few_nodes(count: int, settings: Mapping[str, str]) -> dict[str, str]:
    """Fewer than three nodes cannot keep three copies."""
    few = dict(settings)
    if count < 3:
        few |= {
            "default.replication.factor": str(count),
            "offsets.topic.replication.factor": str(count),
            "min.insync.replicas": "1",
        }
    return few
