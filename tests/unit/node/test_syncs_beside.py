"""Nothing that a running node does waits for the disk in the event loop's thread.

A start and a stop may: nobody is served then.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.base.errors import ErrorCode
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from support.batches import Rec, batch, heads
from support.calls import RawTopic, produce_request
from support.loop_syncs import syncs_in_this_thread
from unit.net.served import run
from unit.serving.cluster_rig import Nodes, nodes
from unit.serving.rig import Peer, Rig, running, until

SEGMENT_BYTES = 1024 * 1024
QUICK_DUTIES = {
    "log_cleaner_backoff_ms": "20",
    "log_retention_check_interval_ms": "20",
    "log_flush_offset_checkpoint_interval_ms": "20",
    "log_segment_delete_delay_ms": "0",
    "replica_high_watermark_checkpoint_interval_ms": "20",
}


async def fill(peer: Peer, topic: RawTopic, batches: int, timestamp: int = 1_000_000) -> None:
    for i in range(batches):
        keyed = [Rec(b"v" * 60_000, b"key-%d" % (i % 7), timestamp) for _ in range(4)]
        answer = await peer.produce(topic, batch(keyed))
        assert answer.error_code == 0


def segments(rig: Rig, topic: RawTopic) -> int:
    return len(rig.partition(topic).log.segments)


async def compacts(rig: Rig, peer: Peer) -> None:
    topic = await rig.topic(
        "compacted",
        cleanup_policy="compact",
        segment_bytes=str(SEGMENT_BYTES),
        min_cleanable_dirty_ratio="0.01",
        file_delete_delay_ms="0",
    )
    await fill(peer, topic, 60)
    runs = rig.node._compaction._metrics.runs  # type: ignore[union-attr]
    log = rig.partition(topic).log
    await until(lambda: runs.value > 1 and log.size_bytes < 6 * SEGMENT_BYTES)


async def retains_and_flushes(rig: Rig, peer: Peer) -> None:
    topic = await rig.topic(
        "retained",
        segment_bytes=str(SEGMENT_BYTES),
        retention_bytes=str(2 * SEGMENT_BYTES),
        retention_ms="-1",
        flush_messages="1",
        file_delete_delay_ms="0",
    )
    await fill(peer, topic, 40)
    log = rig.partition(topic).log
    await until(lambda: log.log_start_offset > 0 and not log.deleted_segments)
    end = log.log_end_offset
    request = DeleteRecordsRequest(
        timeout_ms=10_000,
        topics=[
            DeleteRecordsTopic(
                name=topic.name,
                partitions=[DeleteRecordsPartition(partition_index=0, offset=end - 1)],
            )
        ],
    )
    answer = await peer.call(request, 2)
    assert answer.topics[0].partitions[0].low_watermark == end - 1
    await rig.delete_topic(topic.name)


async def rolls_by_time(rig: Rig, peer: Peer) -> None:
    topic = await rig.topic(
        "aged", segment_ms="1", retention_ms="-1", flush_ms="1", flush_messages="3"
    )
    for stamp in range(5):
        await fill(peer, topic, 1, 1_000_000 + 10_000 * stamp)
    await until(lambda: not rig.partition(topic).log.unflushed_messages)
    assert segments(rig, topic) > 3


def test_a_running_node_syncs_nothing_in_the_loops_thread(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **QUICK_DUTIES) as rig:
            with syncs_in_this_thread() as found:
                peers = [await rig.peer() for _ in range(3)]
                flows = (compacts, retains_and_flushes, rolls_by_time)
                async with asyncio.TaskGroup() as group:
                    for flow, peer in zip(flows, peers, strict=True):
                        group.create_task(flow(rig, peer))
                assert not found, "\n".join(dict.fromkeys(found))

    run(test)


def interrupt_a_swap(directory: Path) -> None:
    """As a kill leaves it behind: the first segment has not got its name yet."""
    (directory.parent / ".kafka_cleanshutdown").unlink()
    for file in list(directory.glob("00000000000000000000.*")):
        if file.suffix in (".log", ".index", ".timeindex"):
            file.rename(f"{file}.swap")


def test_an_interrupted_swap_is_finished_before_anybody_is_served(tmp_path: Path) -> None:
    async def before() -> None:
        async with running(tmp_path, **QUICK_DUTIES) as rig:
            topic = await rig.topic("t", segment_bytes=str(SEGMENT_BYTES), retention_ms="-1")
            await fill(await rig.peer(), topic, 10)
            assert segments(rig, topic) > 2

    async def after() -> None:
        async with running(tmp_path, **QUICK_DUTIES) as rig:
            with syncs_in_this_thread() as found:
                topic = RawTopic("t", rig.broker.metadata.topics["t"].id)
                data = await (await rig.peer()).fetch(topic)
                assert (data.error_code, data.high_watermark) == (0, 40)
                assert heads(data.records)[0].base_offset == 0
                assert not found, "\n".join(dict.fromkeys(found))

    run(before)
    interrupt_a_swap(tmp_path / "t-0")
    run(after)


async def publish_to_all(cluster: Nodes, name: str) -> None:
    """One message to each partition, by the leader that the metadata names."""
    topic = cluster.broker(cluster.controller).metadata.topics[name]
    raw = RawTopic(name, topic.id)
    for index, partition in enumerate(topic.partitions):
        peer = await cluster.peer(partition.leader)
        answer = await peer.send(produce_request(raw, batch([b"v"]), 13, partition=index))
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def test_a_change_of_leaders_syncs_nothing_in_the_loops_thread(tmp_path: Path) -> None:
    async def test() -> None:
        async with nodes(tmp_path, **QUICK_DUTIES) as cluster:
            await until(lambda: cluster.controller)
            await cluster.create(cluster.controller, "t")
            await cluster.all_know("t")
            with syncs_in_this_thread() as found:
                await publish_to_all(cluster, "t")
                gone = cluster.others[0]
                await cluster.lose(gone)

                def led_by_others() -> bool:
                    topics = [cluster.broker(i).metadata.topics["t"] for i in cluster.running]
                    return all(p.leader not in (gone, -1) for t in topics for p in t.partitions)

                await until(led_by_others)
                await publish_to_all(cluster, "t")
                epochs = [
                    partition.log.epochs.latest_epoch
                    for i in cluster.running
                    for partition in cluster.broker(i).replicas.open_partitions()
                    if partition.topic == "t"
                ]
                assert max(epochs) > min(epochs)  # some have another leader now
                assert not found, "\n".join(dict.fromkeys(found))

    run(test)
