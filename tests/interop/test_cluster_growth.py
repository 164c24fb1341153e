"""A node joins a cluster of three, takes partitions over, and leaves again; nothing is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from support.cluster import Cluster
from support.tools import Tools
from support.waiting import eventually
from support.writers import ConfluentWriter

pytestmark = [pytest.mark.penstock_only, pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS = 4
PER_SECOND = 100
MOVE_SECONDS_MAX = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(3, tmp_path) as made:
        yield made


def move(cluster: Cluster, topic: str, replicas: list[int]) -> None:
    """Puts every partition on these nodes, each led by another one, and waits until it is so."""
    wanted = {p: replicas[p % 3 :] + replicas[: p % 3] for p in range(PARTITIONS)}
    partitions = [
        ReassignablePartition(partition_index=p, replicas=nodes) for p, nodes in wanted.items()
    ]
    moved = ReassignableTopic(name=topic, partitions=partitions)
    request = AlterPartitionReassignmentsRequest(timeout_ms=10_000, topics=[moved])
    answer = cluster.ask(request, 0)
    assert answer.error_code == 0, answer

    def done() -> bool:
        states = cluster.partitions(topic)
        return not cluster.ask(ListPartitionReassignmentsRequest(), 0).topics and all(
            states[topic, p].replicas == tuple(nodes) for p, nodes in wanted.items()
        )

    eventually(done, MOVE_SECONDS_MAX)
    cluster.wait_in_sync(topic)


def test_a_node_joins_and_another_leaves(cluster: Cluster) -> None:
    topic = cluster.make_topic("t", PARTITIONS)
    writer = ConfluentWriter(cluster.bootstrap, topic, PARTITIONS, PER_SECOND)
    writer.start()
    eventually(lambda: len(writer.answers) > PER_SECOND)

    fourth = cluster.add_node()
    assert fourth == 4
    move(cluster, topic, [2, 3, 4])
    eventually(lambda: not cluster.nodes[1].partition_dir(topic).exists())
    assert cluster.nodes[4].partition_dir(topic).exists()
    moved = time.time()
    eventually(lambda: len(writer.answers_since(moved)) == PARTITIONS)

    move(cluster, topic, [1, 2, 3])
    cluster.stop(4)
    eventually(lambda: 4 not in _live(cluster))
    stopped = time.time()
    eventually(lambda: len(writer.answers_since(stopped)) == PARTITIONS)
    writer.stop()
    assert writer.errors == []
    offsets = [(answer.partition, answer.offset) for answer in writer.answers]
    assert len(set(offsets)) == len(offsets)


def _live(cluster: Cluster) -> set[int]:
    """The nodes that some partition counts on."""
    return {node_id for state in cluster.partitions().values() for node_id in state.isr}


@pytest.mark.java
def test_observers_are_described(cluster: Cluster) -> None:
    cluster.add_node()
    tools = Tools()
    try:
        text = tools.output(
            "metadata-quorum", "--bootstrap-server", cluster.bootstrap, "describe", "--status"
        )
    finally:
        tools.close()
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    assert {voter["id"] for voter in json.loads(lines["CurrentVoters"])} == {1, 2, 3}
    assert [observer["id"] for observer in json.loads(lines["CurrentObservers"])] == [4]
