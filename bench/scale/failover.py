"""Partitions of three nodes with three copies each: to make, to hold, and to fail over.

The node that leads a third of them is killed with kill -9. Fail-over begins with the signal and
ends when the last of some partitions that it led, spread evenly over all of them, has acknowledged
a message with acks=all; the metadata then has to name a live leader for every partition.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.cluster.writers import ACKS_ALL
from tests.support.cluster import Cluster
from tests.support.cluster_nodes import ClusterNode, PenstockClusterNode

from penstock.base.errors import ErrorCode
from penstock.cli.bench.requests import PRODUCE_VERSION, batch_of, produce_frame
from penstock.wire.messages.produce import ProduceResponse

from .calls import (
    MESSAGE_BYTES,
    Address,
    Caller,
    ScaleError,
    cluster_metadata,
    decoded,
    topic_names,
)
from .nodes import SETTINGS, START_S_MAX, busy_cores, metric, rss_mb, until

NODES = 3
PER_TOPIC = 10
PROBES = 64
IN_SYNC_S_MAX = 900.0
FAIL_OVER_S_MAX = 300.0
LOOK_S = 0.5
PAUSE_S = 0.005


def three_nodes(root: Path, partitions: int, seconds: float) -> dict[str, Any]:
    """`partitions` partitions on each of three nodes."""
    names = topic_names(max(1, partitions // PER_TOPIC))
    found: dict[str, Any] = {"partitions": len(names) * PER_TOPIC, "copies": NODES}
    with Cluster(NODES, root, SETTINGS) as cluster:
        nodes = list(cluster.nodes.values())
        empty = max(node.rss_bytes() for node in nodes)
        with Caller(_address(nodes[0])) as caller:
            took = caller.create(names, PER_TOPIC, NODES)
        found["create_s"] = round(sum(took), 2)
        found["in_sync_s"] = round(_in_sync(cluster, found["partitions"]), 2)
        found["rss_mb"] = max(rss_mb(node) for node in nodes)
        largest = max(node.rss_bytes() for node in nodes)
        found["bytes_each"] = (largest - empty) // found["partitions"]
        found["idle_cores"] = busy_cores(nodes, seconds)
        for role, victim in (("leader", _not_the_controller(cluster)), ("controller", None)):
            victim = victim or cluster.quorum_leader()
            found |= {f"{role}_{k}": v for k, v in _kill(cluster, victim).items()}
            found |= {f"{role}_{k}": v for k, v in _bring_back(cluster, victim, found).items()}
    return found


def _address(node: ClusterNode) -> Address:
    return node.host, node.port


def _not_the_controller(cluster: Cluster) -> int:
    leader = cluster.quorum_leader()
    return next(node_id for node_id in cluster.nodes if node_id != leader)


def _in_sync(cluster: Cluster, partitions: int) -> float:
    """Waits until all replicas are open and in sync."""
    nodes = [n for n in cluster.nodes.values() if isinstance(n, PenstockClusterNode)]

    def complete() -> bool:
        led = [metric(node, "penstock_leader_partitions") or 0 for node in nodes]
        held = [metric(node, "penstock_partitions") or 0 for node in nodes]
        if sum(led) < partitions or min(held) < partitions:
            return False
        return all(metric(node, "penstock_under_replicated_partitions") == 0 for node in nodes)

    return until(complete, IN_SYNC_S_MAX, "all replicas to be in sync", LOOK_S)


def _kill(cluster: Cluster, victim: int) -> dict[str, Any]:
    survivors = [node for node_id, node in cluster.nodes.items() if node_id != victim]
    with Caller(_address(survivors[0])) as caller:
        led = _led_by(caller, victim)
    probes = led[:: max(1, len(led) // PROBES)][:PROBES]
    began = time.perf_counter()
    cluster.kill(victim)
    times = _until_written(survivors, probes, began)
    with Caller(_address(survivors[0])) as caller:
        until(
            lambda: not _led_by(caller, victim), FAIL_OVER_S_MAX, "every partition to move", LOOK_S
        )
    return {
        "partitions_moved": len(led),
        "failover_first_s": round(times[0], 3),
        "failover_last_s": round(times[-1], 3),
    }


def _led_by(caller: Caller, node_id: int) -> list[tuple[str, int]]:
    return [
        (topic.name or "", partition.partition_index)
        for topic in cluster_metadata(caller.metadata()).topics
        if not topic.is_internal
        for partition in topic.partitions
        if partition.leader_id == node_id
    ]


def _until_written(
    survivors: list[ClusterNode], probes: list[tuple[str, int]], began: float
) -> list[float]:
    """The seconds since `began` after which each partition took a message, in order."""
    batch = batch_of(MESSAGE_BYTES, 1)
    times = []
    waiting = list(probes)
    with ExitStack() as stack:
        callers = [
            stack.enter_context(Caller(_address(node), FAIL_OVER_S_MAX)) for node in survivors
        ]
        while waiting:
            left = []
            for topic, index in waiting:
                request = produce_frame(topic, [index], batch, ACKS_ALL)
                if any(_taken(caller, request) for caller in callers):
                    times.append(time.perf_counter() - began)
                else:
                    left.append((topic, index))
            waiting = left
            if time.perf_counter() - began > FAIL_OVER_S_MAX:
                raise ScaleError(f"{len(left)} of {len(probes)} partitions take no message")
            time.sleep(PAUSE_S)
    return sorted(times)


def _taken(caller: Caller, request: bytearray) -> bool:
    answer = decoded(caller.send(request), ProduceResponse, PRODUCE_VERSION)
    return answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def _bring_back(cluster: Cluster, node_id: int, found: dict[str, Any]) -> dict[str, Any]:
    node = cluster.nodes[node_id]
    began = time.perf_counter()
    node.launch()
    until(lambda: node.is_ready() or not node.running, START_S_MAX, "the node to be ready", LOOK_S)
    ready = time.perf_counter() - began
    _in_sync(cluster, found["partitions"])
    return {
        "back_ready_s": round(ready, 2),
        "back_in_sync_s": round(time.perf_counter() - began, 2),
    }
