"""Group commit: by `flush.messages` nothing is acknowledged or visible before its fsync is done."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from penstock.base.errors import ErrorCode
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from support.batches import batch, heads
from support.calls import RawTopic
from unit.net.served import run
from unit.serving.rig import (
    Peer,
    Rig,
    failing_fsync,
    one,
    produce_request,
    running,
    until,
    waiting_reads,
)


def written(rig: Rig, topic: RawTopic) -> int:
    return rig.partition(topic).log.log_end_offset


async def latest(peer: Peer, topic: RawTopic) -> int:
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [ListOffsetsTopic(name=topic.name, partitions=[asked])]
    request = ListOffsetsRequest(replica_id=-1, topics=topics)
    answer = await peer.call(request, 7)
    return int(answer.topics[0].partitions[0].offset)


@pytest.mark.parametrize("acks", [1, -1])
def test_no_acknowledgement_and_no_visibility_before_the_fsync(tmp_path: Path, acks: int) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(flush_messages="1")
            peer, reader = await rig.peer(), await rig.peer()
            partition = rig.partition(topic)
            with rig.held_flushes() as release:
                peer.send(produce_request(topic, batch([b"a", b"b"]), acks=acks), 12)
                await until(lambda: partition.log.log_end_offset == 2)
                assert await peer.silent()
                assert await latest(reader, topic) == 0
                assert not (await reader.fetch(topic, 0)).records
                assert partition.log.recovery_point == 0
                release.set()
                answer = one(await peer.receive())
            assert (answer.error_code, answer.base_offset) == (0, 0)
            assert partition.log.recovery_point == 2
            assert await latest(reader, topic) == 2
            fetched = await reader.fetch(topic, 0)
            assert [h.record_count for h in heads(fetched.records)] == [2]

    run(test)


def test_a_waiting_fetch_is_answered_by_the_fsync(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(flush_messages="1")
            peer, reader = await rig.peer(), await rig.peer()
            waiting = asyncio.create_task(reader.fetch(topic, 0, max_wait_ms=20_000))
            await until(lambda: waiting_reads(rig.partition(topic)))
            with rig.held_flushes() as release:
                peer.send(produce_request(topic, None), 12)
                assert await peer.silent()
                assert not waiting.done()
                release.set()
                assert heads((await waiting).records)
                assert one(await peer.receive()).error_code == 0

    run(test)


def test_below_flush_messages_nothing_waits(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(flush_messages="3")
            peer = await rig.peer()
            with rig.held_flushes() as release:
                for i in range(2):
                    assert (await peer.produce(topic)).base_offset == i
                assert await latest(peer, topic) == 2
                peer.send(produce_request(topic, None), 12)
                assert await peer.silent()
                assert rig.partition(topic).high_watermark == 2
                release.set()
                assert one(await peer.receive()).base_offset == 2

    run(test)


def test_what_is_written_during_a_round_waits_for_the_next(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(flush_messages="1")
            first, second = await rig.peer(), await rig.peer()
            partition = rig.partition(topic)
            with rig.held_flushes() as release_first:
                first.send(produce_request(topic, None), 12)
                await until(lambda: partition.log.log_end_offset == 1)
                # The first round has begun: its end is fixed.
                await until(lambda: not rig.broker.flusher._wanted)
                second.send(produce_request(topic, None), 12)
                await until(lambda: partition.log.log_end_offset == 2)
                with rig.held_flushes() as release_second:
                    release_first.set()
                    assert one(await first.receive()).base_offset == 0
                    assert await second.silent()
                    assert partition.high_watermark == 1
                    release_second.set()
                    assert one(await second.receive()).base_offset == 1

    run(test)


def test_a_partition_that_asks_during_a_round_gets_its_own(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topics = [await rig.topic(f"t{i}", flush_messages="1") for i in range(4)]
            peers = [await rig.peer() for _ in topics]
            with rig.held_flushes() as release:
                for topic, peer in zip(topics, peers, strict=True):
                    peer.send(produce_request(topic, None), 12)
                    await until(partial(written, rig, topic))
                    await asyncio.sleep(0.01)
                release.set()
                for peer in peers:
                    assert one(await peer.receive()).error_code == 0

    run(test)


def test_many_requests_share_a_round(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(partitions=4, flush_messages="1")
            peers = [await rig.peer() for _ in range(20)]
            before = rig.broker.flusher.rounds_total
            with rig.held_flushes() as release:
                for i, peer in enumerate(peers):
                    peer.send(produce_request(topic, None, partition=i % 4), 12)
                await until(
                    lambda: sum(rig.partition(topic, i).log.log_end_offset for i in range(4)) == 20
                )
                release.set()
                for peer in peers:
                    assert one(await peer.receive()).error_code == 0
            assert rig.broker.flusher.rounds_total - before <= 2

    run(test)


def test_a_busy_partition_is_flushed_while_others_stage(tmp_path: Path) -> None:
    """Rounds begin and end between the turns of many connections, whatever is staged just then."""

    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(partitions=2, flush_messages="1")
            peers = [await rig.peer() for _ in range(8)]

            async def publish(number: int, peer: Peer) -> None:
                for i in range(25):
                    answer = await peer.produce(topic, partition=(number + i) % 2)
                    assert answer.error_code == 0

            await asyncio.gather(*(publish(i, peer) for i, peer in enumerate(peers)))
            for index in (0, 1):
                log = rig.partition(topic, index).log
                assert log.recovery_point == log.log_end_offset
            ends = [rig.partition(topic, index).high_watermark for index in (0, 1)]
            assert sum(ends) == 200

    run(test)


def test_a_timeout_is_told_and_the_data_comes_later(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(flush_messages="1")
            peer = await rig.peer()
            with rig.held_flushes():
                answer = await peer.produce(topic, timeout_ms=30)
                assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
                assert await latest(peer, topic) == 0
            await until(lambda: rig.partition(topic).high_watermark == 1)
            assert (await peer.produce(topic)).base_offset == 1

    run(test)


def test_a_failed_fsync_is_told_and_its_data_is_never_taken_for_safe(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(partitions=2, flush_messages="1")
            peer, other = await rig.peer(), await rig.peer()
            assert (await peer.produce(topic)).error_code == 0
            partition = rig.partition(topic)
            with rig.held_flushes() as release:
                peer.send(produce_request(topic, None), 12)
                other.send(produce_request(topic, None, partition=1), 12)
                await until(lambda: partition.log.log_end_offset == 2)
                await until(lambda: rig.partition(topic, 1).log.log_end_offset == 1)
                with failing_fsync(partition):
                    release.set()
                    answer = one(await peer.receive())
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert one(await other.receive()).error_code == 0
            assert (await peer.produce(topic)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            # The kernel may have dropped what it could not write, and the next fsync says nothing
            # of that: no later flush may make it count as durable.
            rig.broker.flusher.request(partition)
            await asyncio.sleep(0.3)
            assert partition.high_watermark == 1
            assert partition.log.recovery_point == 1
            assert len(heads((await peer.fetch(topic, 0)).records)) == 1

    run(test)


def test_a_stop_finishes_the_flush_and_gives_the_acknowledgement(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(flush_messages="1")
            peer = await rig.peer()
            with rig.held_flushes() as release:
                peer.send(produce_request(topic, None), 12)
                await until(lambda: rig.partition(topic).log.log_end_offset == 1)
                stop = asyncio.create_task(rig.server.stop(5.0))
                await asyncio.sleep(0.02)
                assert not stop.done()
                release.set()
                assert one(await peer.receive()).error_code == 0
                assert await peer.is_closed()
                await stop

    run(test)


def test_a_topic_deleted_during_its_flush(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(flush_messages="1")
            peer = await rig.peer()
            with rig.held_flushes() as release:
                peer.send(produce_request(topic, None), 12)
                await until(lambda: rig.partition(topic).log.log_end_offset == 1)
                await rig.delete_topic("t")
                answer = one(await peer.receive())
                assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                release.set()
            again = await rig.topic(flush_messages="1")
            assert (await peer.produce(again)).base_offset == 0

    run(test)


def test_switching_flush_messages_off_lets_the_waiting_go(tmp_path: Path) -> None:
    """The end of what waits for a flush is the flush, also when the setting changes meanwhile."""

    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(flush_messages="1")
            peer = await rig.peer()
            partition = rig.partition(topic)
            with rig.held_flushes() as release:
                peer.send(produce_request(topic, None), 12)
                await until(lambda: partition.log.log_end_offset == 1)
                rig.broker.replicas.reconfigure_all()
                assert await peer.silent()
                release.set()
                assert one(await peer.receive()).error_code == 0

    run(test)
