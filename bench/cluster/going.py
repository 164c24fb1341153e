"""What clients feel when nodes go: by kill -9, and by a clean restart of each in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.support.cluster import Cluster

from penstock.cli.bench.report import percentiles

from .nodes import Options, addresses, prefer_leaders, prefixed, running, say
from .writers import NS, ConfluentWriter, RawWriter, Writer

PARTITIONS = 6
PER_SECOND = 200.0
WARM_UP_ACKS = 400
SETTLE_S = 2.0
STEADY_NS = NS // 5
GO_ON_S_MAX = 40.0
BETWEEN_NODES_S = 3.0
"""As the documentation of a rolling restart says: the next node a moment after all is in sync."""
POLL_S = 0.01


def failover(options: Options) -> dict[str, Any]:
    """From a node's kill until every partition acknowledges again what is sent after it."""
    found: dict[str, Any] = {}
    with running(options) as cluster, _writing(cluster, raw=True) as writers:
        for role, victim_of in (("leader", partition_leader), ("metadata", metadata_leader)):
            pauses: dict[str, list[float]] = {name: [] for name in writers}
            for number in range(options.kills):
                prefer_leaders(cluster, *writers)
                settle(writers)
                victim = victim_of(cluster, number)
                for name, pause in kill(cluster, victim, writers).items():
                    pauses[name].append(pause)
                cluster.start_node(victim)
            for name, measured in pauses.items():
                say(f"{role}, {name}: {[round(pause, 2) for pause in measured]} s")
                found[f"{role}_{name}_median_s"] = round(statistics.median(measured), 3)
                found[f"{role}_{name}_worst_s"] = round(max(measured), 3)
    found["errors"] = sum(len(writer.errors) for writer in writers.values())
    return found


def rolling(options: Options) -> dict[str, Any]:
    """Acknowledgement latency while each node is stopped and started in turn."""
    with running(options) as cluster, _writing(cluster, raw=False) as writers:
        [writer] = writers.values()
        began = time.perf_counter_ns()
        for node_id in cluster.nodes:
            cluster.restart(node_id)
            cluster.wait_complete()
            cluster.wait_in_sync()
            time.sleep(BETWEEN_NODES_S)
        ended = time.perf_counter_ns()
    if writer.errors:
        say(f"producer errors: {writer.errors[:3]}")
    taken = [ack.acked_ns - ack.sent_ns for ack in writer.acks if began < ack.sent_ns < ended]
    latencies = prefixed("rolling", percentiles(taken))
    return {"errors": len(writer.errors), "messages": len(taken), **latencies}


@contextmanager
def _writing(cluster: Cluster, *, raw: bool) -> Iterator[Mapping[str, Writer]]:
    """Writers at work that have warmed up, by the topic that each writes to."""
    cluster.make_topic("confluent", PARTITIONS)
    writers: dict[str, Writer] = {
        "confluent": ConfluentWriter(cluster.bootstrap, "confluent", PARTITIONS, PER_SECOND)
    }
    if raw:
        cluster.make_topic("raw", PARTITIONS)
        writers["raw"] = RawWriter(addresses(cluster), "raw", PARTITIONS, PER_SECOND)
    with ExitStack() as stack:
        for writer in writers.values():
            writer.start()
            stack.callback(writer.stop)
        for writer in writers.values():
            await_true(lambda writer=writer: len(writer.acks) > WARM_UP_ACKS, "no answers")  # type: ignore[misc]
        yield writers


def settle(writers: Mapping[str, Writer]) -> None:
    """Waits until every partition answers at once, for all writers.

    librdkafka tries a node that was down at ever longer intervals; leaders that have gone back to
    it must not be taken for what the next kill did.
    """
    time.sleep(SETTLE_S)
    for name, writer in writers.items():
        await_true(
            lambda writer=writer: (  # type: ignore[misc]
                len(writer.acked_since(time.perf_counter_ns() - STEADY_NS)) == PARTITIONS
            ),
            f"{name} does not come to rest",
        )


def partition_leader(cluster: Cluster, number: int) -> int:
    """A node that leads partitions but not the quorum; another one each time."""
    others = [node_id for node_id in cluster.nodes if node_id != cluster.quorum_leader()]
    return others[number % len(others)]


def metadata_leader(cluster: Cluster, _number: int) -> int:
    return cluster.quorum_leader()


def kill(cluster: Cluster, victim: int, writers: Mapping[str, Writer]) -> dict[str, float]:
    """The seconds until all partitions of each writer go on."""
    moment = time.perf_counter_ns()
    cluster.kill(victim)
    pauses = {}
    for name, writer in writers.items():
        await_true(
            lambda writer=writer: len(writer.acked_since(moment)) == PARTITIONS,  # type: ignore[misc]
            f"{name} does not go on",
        )
        pauses[name] = (max(writer.acked_since(moment).values()) - moment) / NS
    return pauses


def await_true(check: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + GO_ON_S_MAX
    while not check():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{complaint} for {GO_ON_S_MAX:g} s")
        time.sleep(POLL_S)
