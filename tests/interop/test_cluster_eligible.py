"""Eligible leader replicas as clients see them, when a replica leaves below `min.insync.replicas`.

What an election makes of them is in `tests/scenario/metadata` and `tests/sim/cluster`: three nodes
have no controller while two of them are away.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.wire.messages import describe_topic_partitions as describe
from support.cluster import Cluster
from support.features import ELIGIBLE_LEADER_REPLICAS, enable_feature
from support.waiting import eventually


@pytest.fixture
def cluster(target: str, tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(3, tmp_path, kind=target) as made:
        if target == "kafka":
            enable_feature(made.bootstrap, ELIGIBLE_LEADER_REPLICAS)
        yield made


def described(cluster: Cluster, topic: str, node_id: int) -> tuple[set[int], ...]:
    """Who is in sync, who is eligible, and the last known leader."""
    request = describe.DescribeTopicPartitionsRequest(topics=[describe.TopicRequest(name=topic)])
    [found] = cluster.ask(request, 0, [node_id]).topics
    [partition] = found.partitions
    return (
        set(partition.isr_nodes),
        set(partition.eligible_leader_replicas),
        set(partition.last_known_elr),
    )


def test_who_leaves_below_the_minimum_is_eligible(cluster: Cluster) -> None:
    topic = cluster.make_topic("t", replicas=2)
    leader = cluster.leader(topic)
    state = cluster.partitions(topic)[topic, 0]
    other = next(node_id for node_id in state.replicas if node_id != leader)
    eventually(lambda: described(cluster, topic, leader) == ({leader, other}, set(), set()))
    cluster.kill(other)
    eventually(lambda: described(cluster, topic, leader) == ({leader}, {other}, set()))
    cluster.start_node(other)
    eventually(lambda: described(cluster, topic, leader) == ({leader, other}, set(), set()))
