"""The cluster that is measured: three nodes of their own processes, and topics whose leaders are
where a measurement wants them.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]
from tests.support.cluster import Cluster
from tests.support.cluster_nodes import ClusterNode
from tests.support.waiting import CALL_SECONDS_MAX

from penstock.kafka.client import Address

NODES = 3


@dataclass(frozen=True)
class Options:
    """What is asked of all parts."""

    kills: int
    seconds: float
    catch_up_bytes: int
    touch_bytes: int
    folder: str | None


@contextmanager
def running(options: Options, settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Three nodes that are gone afterwards, with their data."""
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=options.folder) as root,
        Cluster(NODES, Path(root), settings) as cluster,
    ):
        try:
            yield cluster
        except BaseException:
            say(cluster.log_tails())
            raise


@contextmanager
def apart(node: ClusterNode) -> Iterator[None]:
    """`node` has one core for itself; everything else, also what is started inside, the others."""
    allowed = os.sched_getaffinity(0)
    own = min(allowed)
    others = allowed - {own} or allowed
    for thread in Path(f"/proc/{node.pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {own})
    os.sched_setaffinity(0, others)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def address(cluster: Cluster, node_id: int) -> Address:
    node = cluster.nodes[node_id]
    return node.host, node.port


def addresses(cluster: Cluster) -> list[Address]:
    return [address(cluster, node_id) for node_id in cluster.nodes]


def place_topic(
    cluster: Cluster, name: str, replicas: list[list[int]], config: Mapping[str, str] | None = None
) -> None:
    """A topic whose partitions have these replicas, the first of which leads."""
    new = NewTopic(name, len(replicas), replica_assignment=replicas, config=dict(config or {}))
    cluster.admin().create_topics([new])[name].result(CALL_SECONDS_MAX)
    cluster.wait_in_sync(name)


def prefer_leaders(cluster: Cluster, *topics: str) -> None:
    """Every partition is led by its first replica again, and in sync."""
    cluster.wait_complete()
    cluster.wait_in_sync()
    wanted = [TopicPartition(topic, p) for topic, p in cluster.partitions(*topics)]
    cluster.admin().elect_leaders(ElectionType.PREFERRED, wanted).result(CALL_SECONDS_MAX)
    deadline = time.monotonic() + CALL_SECONDS_MAX
    while any(state.leader != state.replicas[0] for state in cluster.partitions(*topics).values()):
        if time.monotonic() > deadline:
            raise RuntimeError("preferred leaders were not elected")
        time.sleep(0.05)


def cpu_seconds(cluster: Cluster) -> float:
    """User and system time of all nodes together."""
    return sum(cluster.nodes[node_id].cpu_seconds() for node_id in cluster.running)


def prefixed(prefix: str, found: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}_{name}": value for name, value in found.items()}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
