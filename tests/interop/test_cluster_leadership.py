"""What a producer is told whose message waits for its replicas while leadership moves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from support.batches import batch, heads
from support.calls import fetch, find_topic, produce_request
from support.cluster import Cluster
from support.raw import RawClient
from support.waiting import eventually

pytestmark = pytest.mark.penstock_only  # Kafka says NOT_LEADER_OR_FOLLOWER at once

VERSION = 12
TIMEOUT_MS = 20_000
PREFERRED = 0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(3, tmp_path) as made:
        yield made


class Waiting(threading.Thread):
    """A message that is sent with acks=all, and its answer when there is one."""

    def __init__(self, cluster: Cluster, topic: str, value: bytes) -> None:
        super().__init__(daemon=True)
        node = cluster.nodes[cluster.leader(topic)]
        self._client = RawClient(node.host, node.port, seconds=2 * TIMEOUT_MS / 1000)
        self._request = produce_request(find_topic(self._client, topic), batch([value]), VERSION)
        self._request.timeout_ms = TIMEOUT_MS
        self.answer: Any = None
        self.start()

    def run(self) -> None:
        [of_topic] = self._client.call(self._request, VERSION).responses
        [self.answer] = of_topic.partition_responses
        self._client.close()

    def result(self) -> Any:
        self.join(2 * TIMEOUT_MS / 1000)
        return self.answer


def stored_at(cluster: Cluster, node_id: int, topic: str) -> int:
    """How many batches a node's copy holds."""
    folder = cluster.nodes[node_id].partition_dir(topic)
    return sum(len(heads(path.read_bytes())) for path in sorted(folder.glob("*.log")))


def move(cluster: Cluster, topic: str, replicas: list[int]) -> None:
    """Makes the first of `replicas` the leader."""
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    moved = ReassignableTopic(name=topic, partitions=[partition])
    request = AlterPartitionReassignmentsRequest(timeout_ms=10_000, topics=[moved])
    assert cluster.ask(request, 0, replicas[:1]).error_code == 0
    eventually(
        lambda: (
            cluster.partitions(topic, node_ids=replicas[:1])[topic, 0].replicas == tuple(replicas)
        )
    )
    elected = ElectLeadersRequest(
        election_type=PREFERRED,
        topic_partitions=[TopicPartitions(topic=topic, partitions=[0])],
        timeout_ms=10_000,
    )
    assert cluster.ask(elected, 2, replicas[:1]).error_code == 0
    eventually(
        lambda: cluster.partitions(topic, node_ids=replicas[:1])[topic, 0].leader == replicas[0]
    )


def roles(cluster: Cluster, topic: str) -> tuple[int, int, int]:
    """The leader, who shall lead next, and one that can be stopped without an election."""
    leader, quorum = cluster.leader(topic), cluster.quorum_leader()
    still = next(node_id for node_id in cluster.nodes if node_id not in (leader, quorum))
    heir = next(node_id for node_id in cluster.nodes if node_id not in (leader, still))
    return leader, heir, still


def test_what_the_next_leader_has_is_acknowledged(cluster: Cluster) -> None:
    topic = cluster.make_topic("t")
    leader, heir, still = roles(cluster, topic)
    cluster.pause(still)
    waiting = Waiting(cluster, topic, b"kept")
    eventually(lambda: stored_at(cluster, heir, topic) == 1)
    move(cluster, topic, [heir, leader, still])
    assert waiting.answer is None, "nobody can know yet"
    cluster.resume(still)
    answer = waiting.result()
    assert (answer.error_code, answer.base_offset) == (0, 0)
    cluster.wait_in_sync(topic)
    with cluster.raw(heir) as client:
        found = fetch(client, find_topic(client, topic), 0)
        assert [head.base_offset for head in heads(found.records)] == [0]
