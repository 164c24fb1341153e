"""Measures what a cluster promises: `python -m tests.chaos.cluster.measure [failover|idle|...]`.

Fail-over is measured by a client that asks for the leader again every few milliseconds, so that it
is the cluster's own time: from the kill of a node to the first acknowledged write (acks=all) of a
partition that it led. Everything runs on this one machine, three nodes and the load together.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from support.batches import batch, heads
from support.calls import RawTopic, fetch, find_topic, produce_request
from support.cluster import Cluster
from support.raw import Closed, RawClient
from support.waiting import eventually

from .report import percentile

KILLS = 12
TRY_EVERY_SECONDS = 0.005
WRITE_TIMEOUT_MS = 1_000
PRODUCE_VERSION = 12
IDLE_PARTITIONS = 1_000
IDLE_SECONDS = 20.0
BEHIND_BYTES = 1 << 30
BATCH_BYTES = 500_000
SMALL_BYTES = 1_000
FETCH_BYTES = 8 << 20
SAMPLE_SECONDS = 10.0
CATCH_UP_SECONDS_MAX = 300.0


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Writer:
    """Writes to one partition, at whichever node leads it."""

    def __init__(self, cluster: Cluster, topic: str, size: int = 100) -> None:
        self._cluster = cluster
        self._topic = topic
        self._batch = batch([bytes(size)])
        self._client: RawClient | None = None

    def write(self) -> bool:
        """One write; False when it was not acknowledged, and the next one looks for the leader."""
        try:
            client = self._connected()
            request = produce_request(
                RawTopic(self._topic, bytes(16)), self._batch, PRODUCE_VERSION
            )
            request.timeout_ms = WRITE_TIMEOUT_MS
            [of_topic] = client.call(request, PRODUCE_VERSION).responses
            [answer] = of_topic.partition_responses
            if answer.error_code == 0:
                return True
        except (OSError, Closed, AssertionError):
            pass
        self.close()
        return False

    def _connected(self) -> RawClient:
        if self._client is None:
            state = self._cluster.partitions(self._topic)[self._topic, 0]
            assert state.leader in self._cluster.nodes, "no leader"
            node = self._cluster.nodes[state.leader]
            self._client = RawClient(node.host, node.port, seconds=WRITE_TIMEOUT_MS / 1000)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def failover(cluster: Cluster) -> None:
    """Kills of a partition's leader, and of the metadata's leader."""
    topic = cluster.make_topic("failover", 1)

    cases: dict[str, Callable[[], int]] = {
        "partition leader": lambda: cluster.leader(topic),
        "metadata leader": cluster.quorum_leader,
    }
    for what, choose in cases.items():
        pauses, both = [], 0
        for _ in range(KILLS):
            pause, double = _kill(cluster, topic, choose())
            pauses.append(pause)
            both += double
        say(
            f"killed {what} ({KILLS} kills, {both} of them led both): writing went on after "
            f"{statistics.median(pauses):.2f} s median, {max(pauses):.2f} s worst"
        )


def _kill(cluster: Cluster, topic: str, victim: int) -> tuple[float, bool]:
    """One kill: how long until the next write, and whether the victim led both."""
    writer = Writer(cluster, topic)
    eventually(writer.write)
    double = victim == cluster.leader(topic) == cluster.quorum_leader()
    began = time.monotonic()
    cluster.kill(victim)
    while not writer.write():
        time.sleep(TRY_EVERY_SECONDS)
    pause = time.monotonic() - began
    writer.close()
    cluster.start_node(victim)
    cluster.wait_complete()
    cluster.wait_in_sync()
    return pause, double


def idle(cluster: Cluster) -> None:
    """Processor time of nodes that hold many partitions and do nothing."""
    cluster.make_topic("idle", IDLE_PARTITIONS)
    time.sleep(5.0)  # what the making of partitions has set off
    before = {node.node_id: node.cpu_seconds() for node in cluster.nodes.values()}
    time.sleep(IDLE_SECONDS)
    used = {
        node.node_id: node.cpu_seconds() - before[node.node_id] for node in cluster.nodes.values()
    }
    each = ", ".join(f"node {node_id} {seconds:.2f} s" for node_id, seconds in used.items())
    say(
        f"idle with {IDLE_PARTITIONS} partitions of three replicas: {sum(used.values()):.2f} s of "
        f"processor in {IDLE_SECONDS:.0f} s = {sum(used.values()) / IDLE_SECONDS:.1%} of one core "
        f"({each})"
    )


@contextlib.contextmanager
def _small_writes(cluster: Cluster, topic: str) -> Iterator[list[tuple[float, float]]]:
    """Small writes one after the other; (when, how long) of each."""
    done, taken = threading.Event(), []
    writer = Writer(cluster, topic, SMALL_BYTES)

    def work() -> None:
        while not done.wait(0.004):
            began = time.monotonic()
            if writer.write():
                taken.append((began, time.monotonic() - began))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield taken
    finally:
        done.set()
        thread.join()
        writer.close()


def catch_up(cluster: Cluster) -> None:
    """A follower that was away while a gigabyte was written."""
    topic = cluster.make_topic("behind", 1)
    leader = cluster.leader(topic)
    away = next(node_id for node_id in cluster.nodes if node_id != leader)
    cluster.stop(away)
    writer = Writer(cluster, topic, BATCH_BYTES)
    written = 0
    while written < BEHIND_BYTES:
        assert writer.write(), "a write failed"
        written += BATCH_BYTES
    writer.close()
    with _small_writes(cluster, topic) as taken:
        time.sleep(SAMPLE_SECONDS)
        began = time.monotonic()
        cluster.start_node(away)
        started = time.monotonic()
        cluster.wait_in_sync(topic, seconds=CATCH_UP_SECONDS_MAX)
        ended = time.monotonic()
    before = [took for when, took in taken if when < began]
    during = [took for when, took in taken if began <= when < ended]
    raw = _read_speed(cluster, topic)
    speed = written / (ended - began) / 1e6
    say(
        f"a follower {written / 1e9:.1f} GB behind was in sync {ended - began:.1f} s after its "
        f"start ({ended - started:.1f} s after it was ready): {speed:.0f} MB/s; a consumer reads "
        f"{raw:.0f} MB/s"
    )
    say(
        f"the leader's writes took p99 {percentile(before, 0.99) * 1000:.1f} ms before and "
        f"{percentile(during, 0.99) * 1000:.1f} ms meanwhile "
        f"(p50 {percentile(before, 0.5) * 1000:.1f} and {percentile(during, 0.5) * 1000:.1f} ms)"
    )


def _read_speed(cluster: Cluster, topic: str) -> float:
    """MB/s of one connection that fetches the partition from its leader, one request at a time."""
    with cluster.raw(cluster.leader(topic)) as client:
        named = find_topic(client, topic)
        offset, size, began = 0, 0, time.monotonic()
        while size < BEHIND_BYTES:
            answer = fetch(
                client, named, offset, 12, max_bytes=FETCH_BYTES, partition_max_bytes=FETCH_BYTES
            )
            data = bytes(answer.records)
            size += len(data)
            offset = heads(data)[-1].last_offset + 1
        return size / (time.monotonic() - began) / 1e6


MEASURES: dict[str, Callable[[Cluster], None]] = {
    "failover": failover,
    "idle": idle,
    "catch-up": catch_up,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.cluster.measure", description=__doc__
    )
    parser.add_argument("what", nargs="*", choices=[*MEASURES, []], default=[])
    parser.add_argument("--target", choices=("penstock", "kafka"), default="penstock")
    given = parser.parse_args()
    for what in given.what or MEASURES:
        with (
            tempfile.TemporaryDirectory(prefix="penstock-measure-") as root,
            Cluster(3, Path(root), kind=given.target) as cluster,
        ):
            MEASURES[what](cluster)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
