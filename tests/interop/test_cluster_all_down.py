"""The nodes are killed at once, and not all of them come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from support.batches import heads
from support.calls import fetch, find_topic
from support.cluster import Cluster
from support.helpers import NO_DUPLICATES
from support.waiting import eventually

TOPIC, PARTITIONS = "all-down", 6
MESSAGES = 60


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(3, tmp_path) as made:
        yield made


def publish(cluster: Cluster, first: int) -> None:
    """`MESSAGES` more, evenly over the partitions; all must be acknowledged."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **NO_DUPLICATES})
    for number in range(first, first + MESSAGES):
        producer.produce(
            TOPIC,
            str(number),
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert errors == []


def stored(cluster: Cluster, partition: int) -> int:
    """How many messages the leader of a partition serves."""
    node_id = cluster.leader(TOPIC, partition)
    with cluster.raw(node_id) as client:
        data = fetch(client, find_topic(client, TOPIC), 0, partition=partition)
        return sum(head.record_count for head in heads(data.records))


def test_two_go_on_that_were_killed_while_the_third_is_silent(cluster: Cluster) -> None:
    """What was written outlives its process, so the two that come back have lost nothing."""
    silent = 3
    cluster.make_topic(TOPIC, PARTITIONS)
    cluster.wait_in_sync(TOPIC)
    publish(cluster, 0)
    others = [node_id for node_id in (1, 2, 3) if node_id != silent]
    cluster.pause(silent)
    cluster.kill(*others)
    cluster.start_node(*others)
    # A producer would wait for the silent one while that leads.
    eventually(
        lambda: all(
            state.leader in others for state in cluster.partitions(TOPIC, node_ids=others).values()
        )
    )
    publish(cluster, MESSAGES)
    eventually(
        lambda: all(
            stored(cluster, partition) == 2 * MESSAGES // PARTITIONS
            for partition in range(PARTITIONS)
        )
    )
    cluster.resume(silent)
    cluster.wait_in_sync(TOPIC)
