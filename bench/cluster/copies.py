"""What copies cost: each write, a follower that comes back, and idling."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.support.cluster import Cluster

from penstock.cli.bench.broker import touch_memory
from penstock.cli.bench.raw_consume import FetchLoad
from penstock.cli.bench.raw_produce import ProduceLoad
from penstock.cli.bench.report import MB, percentiles
from penstock.cli.bench.requests import message_batch

from .nodes import Options, address, apart, cpu_seconds, place_topic, prefixed, running, say
from .paced import PacedProcess, PacedProduce
from .writers import ACKS_ALL, MESSAGE_BYTES

PER_SECOND = 1000.0
WARM_UP_S = 1.0
BATCH_BYTES = 1_000_000
FETCH_BYTES = 1024 * 1024
CONNECTIONS = 2
DEPTH = 2
CATCH_UP_PARTITIONS = 4
CATCH_UP_S_MAX = 300.0
IDLE_PARTITIONS = 1000
IDLE_SETTLE_S = 10.0
IDLE_S = 20.0
POLL_S = 0.02


def replication(options: Options) -> dict[str, Any]:
    """The same load upon a partition with one copy and one with three, of which two must have a
    write.
    """
    found: dict[str, Any] = {}
    with running(options) as cluster:
        for name, replicas in (("rf1", [1]), ("rf3", [1, 2, 3])):
            least = "2" if len(replicas) > 1 else "1"
            place_topic(cluster, name, [replicas], {"min.insync.replicas": least})
            paced = PacedProduce([(address(cluster, 1), 0)], name, ACKS_ALL)
            paced.run(PER_SECOND, WARM_UP_S)
            latencies = percentiles(paced.run(PER_SECOND, options.seconds))
            paced.close()
            found |= prefixed(name, latencies)
            touch_memory(options.touch_bytes)
            found |= prefixed(name, _throughput(cluster, name, options.seconds))
    return found


def _throughput(cluster: Cluster, topic: str, seconds: float) -> dict[str, Any]:
    batch, count = message_batch(MESSAGE_BYTES, BATCH_BYTES)
    load = ProduceLoad(
        address(cluster, 1),
        topic,
        [0],
        batch,
        connections=CONNECTIONS,
        depth=DEPTH,
        acks=ACKS_ALL,
    )
    load.run(WARM_UP_S)
    before = cpu_seconds(cluster)
    took = load.run(seconds)
    spent = cpu_seconds(cluster) - before
    requests = load.requests
    load.finish()
    return {
        "mb_per_s": round(requests * len(batch) / MB / took, 1),
        "messages_per_s": round(requests * count / took),
        "mb_per_core_s": round(requests * len(batch) / MB / spent, 1),
    }


def catch_up(options: Options) -> dict[str, Any]:
    """A follower was away while much was written: how fast it comes back, what that does to the
    leader's clients, and how fast the same data can be read.

    The leader has a core of its own, as it has a machine of its own elsewhere.
    """
    leader, follower = 1, 2
    with running(options) as cluster, apart(cluster.nodes[leader]):
        one_copy = {"min.insync.replicas": "1"}
        place_topic(cluster, "data", [[leader, follower]] * CATCH_UP_PARTITIONS, one_copy)
        place_topic(cluster, "paced", [[leader]], one_copy)
        cluster.stop(follower)
        touch_memory(options.touch_bytes)
        _fill(cluster, leader, "data", options.catch_up_bytes)
        found = _read_speeds(cluster, leader, "data", options.seconds)
        touch_memory(options.touch_bytes)  # a host may soon take back what is not used
        size = _bytes(cluster, leader, "data") - _bytes(cluster, follower, "data")
        with PacedProcess(address(cluster, leader), "paced", PER_SECOND) as paced:
            paced.measured(lambda: time.sleep(WARM_UP_S))
            _, latencies = paced.measured(lambda: time.sleep(options.seconds))
            before = percentiles(latencies)
            _launch(cluster, follower)
            seconds, latencies = paced.measured(lambda: _until_in_sync(cluster, leader, follower))
            after = percentiles(latencies)
    found |= prefixed("before", before) | prefixed("during", after)
    speed = size / MB / seconds
    found["catch_up_mb_per_s"] = round(speed, 1)
    found["share_of_fetch"] = round(speed / found["fetch_mb_per_s"], 3)
    found["p99_ratio"] = round(after["p99_ms"] / before["p99_ms"], 2)
    return found


def _fill(cluster: Cluster, leader: int, topic: str, size: int) -> None:
    batch, _ = message_batch(MESSAGE_BYTES, BATCH_BYTES // CATCH_UP_PARTITIONS)
    partitions = list(range(CATCH_UP_PARTITIONS))
    load = ProduceLoad(
        address(cluster, leader),
        topic,
        partitions,
        batch,
        connections=CONNECTIONS,
        depth=DEPTH,
        acks=1,
    )
    while _bytes(cluster, leader, topic) < size:
        load.run(POLL_S)
    load.finish()


def _logs(cluster: Cluster, node_id: int, topic: str) -> list[Path]:
    return sorted(cluster.nodes[node_id].data_dir.glob(f"{topic}-*/*.log"))


def _bytes(cluster: Cluster, node_id: int, topic: str) -> int:
    return sum(path.stat().st_size for path in _logs(cluster, node_id, topic))


def _read_speeds(cluster: Cluster, leader: int, topic: str, seconds: float) -> dict[str, Any]:
    """The data as a raw consumer gets it, and as the files give it."""
    end = _end_offset(cluster, leader, topic)
    load = FetchLoad(
        address(cluster, leader),
        topic,
        start=0,
        end=end,
        max_bytes=FETCH_BYTES,
        connections=1,
    )
    took = load.run(seconds)
    fetched = load.bytes
    load.finish()
    buffer = bytearray(FETCH_BYTES)
    size = 0
    began = time.perf_counter()
    for path in _logs(cluster, leader, topic):
        with path.open("rb", buffering=0) as file:
            while read := file.readinto(buffer):
                size += read
    file_seconds = time.perf_counter() - began
    return {
        "fetch_mb_per_s": round(fetched / MB / took, 1),
        "file_mb_per_s": round(size / MB / file_seconds, 1),
    }


def _end_offset(cluster: Cluster, node_id: int, topic: str) -> int:
    from penstock.wire.messages.list_offsets import (
        ListOffsetsPartition,
        ListOffsetsRequest,
        ListOffsetsTopic,
    )

    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [ListOffsetsTopic(name=topic, partitions=[partition])]
    answer = cluster.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 5, [node_id])
    return int(answer.topics[0].partitions[0].offset)


def _launch(cluster: Cluster, follower: int) -> None:
    """Starts the follower; back with its first new byte, so that the start of a process is not
    taken for the price of copying.
    """
    had = _bytes(cluster, follower, "data")
    cluster.nodes[follower].launch()
    deadline = time.perf_counter() + CATCH_UP_S_MAX
    while _bytes(cluster, follower, "data") == had:
        if time.perf_counter() > deadline:
            raise RuntimeError("the follower fetches nothing")
        time.sleep(POLL_S / 10)


def _until_in_sync(cluster: Cluster, leader: int, follower: int) -> float:
    """The seconds until the follower is in sync everywhere."""
    began = time.perf_counter()
    while True:
        states = cluster.partitions("data", node_ids=[leader]).values()
        if all(follower in state.isr for state in states):
            return time.perf_counter() - began
        if time.perf_counter() - began > CATCH_UP_S_MAX:
            raise RuntimeError(f"the follower is not in sync: {states}")
        time.sleep(POLL_S)


def idle(options: Options) -> dict[str, Any]:
    """What nodes with many partitions use when nothing happens."""
    with running(options) as cluster:
        cluster.make_topic("idle", IDLE_PARTITIONS)
        time.sleep(IDLE_SETTLE_S)
        before = cpu_seconds(cluster)
        time.sleep(IDLE_S)
        spent = cpu_seconds(cluster) - before
        sizes = [cluster.nodes[node_id].rss_bytes() / MB for node_id in cluster.running]
        say(f"memory: {[round(size, 1) for size in sizes]} MB")
    return {
        "cpu_percent": round(100 * spent / IDLE_S, 2),
        "rss_mb": round(max(sizes), 1),
    }
