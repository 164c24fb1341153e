"""The produce path: what is written, what is answered, and that a failing disk is told to all."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.records import read_records
from support.batches import batch, heads
from support.calls import RawTopic
from support.raw import Closed
from unit.net.served import run
from unit.serving.rig import Peer, Rig, full_disk, one, produce_request, running, until

BIG = batch([b"x" * 200_000])


async def stored(peer: Peer, topic: RawTopic, partition: int = 0) -> list[bytes | None]:
    """Every value of a partition."""
    values: list[bytes | None] = []
    offset = 0
    while True:
        data = await peer.fetch(topic, offset, partition=partition, partition_max_bytes=1 << 24)
        assert data.error_code == 0
        if not data.records:
            return values
        raw, at = bytes(data.records), 0
        for head in heads(raw):
            size = head.length + 12
            values += [r.value for r in read_records(raw[at : at + size])]
            at += size
            offset = head.last_offset + 1


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_records_are_stored_and_answered(tmp_path: Path, version: int, acks: int) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            peer = await rig.peer()
            for i in range(3):
                answer = await peer.produce(topic, batch([b"a", b"b"]), version=version, acks=acks)
                assert (answer.error_code, answer.base_offset) == (0, 2 * i)
                assert answer.log_append_time_ms == -1
            assert await stored(peer, topic) == [b"a", b"b"] * 3

    run(test)


def test_without_acknowledgement_nothing_is_answered(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            peer = await rig.peer()
            for _ in range(3):
                peer.send(produce_request(topic, None, acks=0), 12)
                peer._sent.pop()
            # The answer that comes is the next request's.
            assert (await peer.produce(topic)).base_offset == 3

    run(test)


def test_a_failure_without_acknowledgement_closes_the_connection(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            good, bad = await rig.peer(), await rig.peer()
            bad.send(produce_request(topic, b"garbage", acks=0), 12)
            assert await bad.is_closed()
            assert (await good.produce(topic)).error_code == 0

    run(test)


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_acks_that_do_not_exist(tmp_path: Path, acks: int) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            answer = await (await rig.peer()).produce(topic, acks=acks)
            assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
            assert str(acks) in answer.error_message
            assert rig.partition(topic).log.log_end_offset == 0

    run(test)


def test_each_partition_gets_its_own_answer(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(partitions=2)
            peer = await rig.peer()

            def data(index: int, records: bytes | None) -> PartitionProduceData:
                return PartitionProduceData(index=index, records=records)

            good = batch([b"x"])
            request = ProduceRequest(
                acks=-1,
                timeout_ms=1000,
                topic_data=[
                    TopicProduceData(
                        name="t",
                        partition_data=[
                            data(0, good),
                            data(1, b"bad"),
                            data(2, good),
                            data(-1, good),
                            data(1, None),
                            data(1, good),
                        ],
                    ),
                    TopicProduceData(name="nowhere", partition_data=[data(0, good)]),
                    TopicProduceData(name="", partition_data=[data(0, good)]),
                ],
            )
            answer = await peer.call(request, 12)
            found = [
                (t.name, p.index, p.error_code, p.base_offset)
                for t in answer.responses
                for p in t.partition_responses
            ]
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert found == [
                ("t", 0, 0, 0),
                ("t", 1, ErrorCode.CORRUPT_MESSAGE, -1),
                ("t", 2, unknown, -1),
                ("t", -1, unknown, -1),
                ("t", 1, ErrorCode.INVALID_RECORD, -1),
                ("t", 1, 0, 0),
                ("nowhere", 0, unknown, -1),
                ("", 0, unknown, -1),
            ]
            counters = rig.partition(topic).counters
            assert (counters.messages_in, counters.failed_produce_requests) == (2, 2)

    run(test)


def test_an_unknown_topic_id(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            answer = await (await rig.peer()).produce(RawTopic("", b"i" * 16), version=13)
            assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID

    run(test)


def test_no_more_replicas_are_asked_for_than_there_are(tmp_path: Path) -> None:
    """`min.insync.replicas` beyond the number of replicas means all of them, as in Kafka."""

    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(min_insync_replicas="2")
            peer = await rig.peer()
            for acks in (-1, 1):
                assert (await peer.produce(topic, acks=acks)).error_code == 0

    run(test)


def test_an_idempotent_producers_duplicate_gets_the_first_offset(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            peer = await rig.peer()

            def of(sequence: int) -> bytes:
                return batch([b"a", b"b"], producer_id=7, producer_epoch=0, base_sequence=sequence)

            assert (await peer.produce(topic, of(0))).base_offset == 0
            assert (await peer.produce(topic, of(2))).base_offset == 2
            for sequence in (0, 2):
                answer = await peer.produce(topic, of(sequence))
                assert (answer.error_code, answer.base_offset) == (0, sequence)
            answer = await peer.produce(topic, of(6))
            assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert rig.partition(topic).log.log_end_offset == 4
            assert rig.partition(topic).counters.messages_in == 4

    run(test)


# -- group append ----------------------------------------------------------------------------------


async def grouping(rig: Rig, topic: RawTopic) -> tuple[Peer, Peer]:
    """Two connections that have produced by turns, so that appends are grouped."""
    one_peer, other = await rig.peer(), await rig.peer()
    for peer in (one_peer, other):
        assert (await peer.produce(topic)).error_code == 0
    return one_peer, other


class Writes:
    """Counts what is written to one file, and writes it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fd: int) -> None:
        self.count = 0
        for name in ("pwrite", "pwritev"):
            real = getattr(os, name)
            monkeypatch.setattr(os, name, self._spy(real, fd))

    def _spy(self, real: Any, fd: int) -> Any:
        def spy(to: int, *args: Any) -> Any:
            self.count += to == fd
            return real(to, *args)

        return spy


def test_the_requests_of_one_turn_share_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(partitions=2)
            peers = [*await grouping(rig, topic), await rig.peer(), await rig.peer()]
            partition = rig.partition(topic)
            before = partition.log.log_end_offset
            file = partition.log.segments.active.file
            writes = Writes(monkeypatch, file.pin())
            for peer in peers:
                peer.deliver(produce_request(topic, batch([b"a", b"b"])), 12)
            # Nothing is written, visible or answered before the turn is over.
            assert writes.count == 0
            assert partition.high_watermark == before
            answers = [one(await peer.receive()) for peer in peers]
            assert writes.count == 1
            file.unpin()
            assert [(a.error_code, a.base_offset) for a in answers] == [
                (0, before + 2 * i) for i in range(4)
            ]
            assert partition.high_watermark == before + 8

    run(test)


def test_a_lone_connection_is_answered_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            peer = await rig.peer()
            assert (await peer.produce(topic)).error_code == 0
            peer.deliver(produce_request(topic, None), 12)
            assert rig.partition(topic).high_watermark == 2
            assert one(await peer.receive()).base_offset == 1
            # Many by turns, then alone again: it goes back to answering at once.
            await grouping(rig, topic)
            for _ in range(40):
                await peer.produce(topic)
            end = rig.partition(topic).log.log_end_offset
            peer.deliver(produce_request(topic, None), 12)
            assert rig.partition(topic).high_watermark == end + 1
            await peer.receive()

    run(test)


def test_every_connections_order_is_kept(tmp_path: Path) -> None:
    async def test() -> None:
        rng = Random(3)
        async with running(tmp_path) as rig:
            topic = await rig.topic(partitions=2)
            peers = [await rig.peer() for _ in range(8)]

            async def publish(number: int, peer: Peer) -> None:
                for i in range(30):
                    peer.send(produce_request(topic, batch([b"%d %d" % (number, i)])), 12)
                    if rng.random() < 0.3:
                        await asyncio.sleep(0)
                offsets = [one(await peer.receive()).base_offset for _ in range(30)]
                assert offsets == sorted(set(offsets))

            await asyncio.gather(*(publish(i, peer) for i, peer in enumerate(peers)))
            values = [value.split() for value in await stored(peers[0], topic) if value]
            assert len(values) == 240
            for number in range(8):
                mine = [int(i) for who, i in values if int(who) == number]
                assert mine == list(range(30))

    run(test)


def test_a_request_that_cannot_be_answered_does_not_silence_its_turn(tmp_path: Path) -> None:
    """A sentence too long for the answer's string must not cost the others of the turn theirs."""

    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            good, other = await grouping(rig, topic)
            bad = await rig.peer()
            bad.deliver(produce_request(RawTopic("\x01" * 30_000, b""), None, 8), 8)
            good.deliver(produce_request(topic, None, 8), 8)
            other.deliver(produce_request(topic, None, 8), 8)
            assert one(await good.receive()).error_code == 0
            assert one(await other.receive()).error_code == 0
            try:
                answer = one(await bad.receive())
            except Closed:
                return
            assert answer.error_code in (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.INVALID_TOPIC_EXCEPTION,
            )

    run(test)


# -- a disk that refuses ---------------------------------------------------------------------------


def test_a_refused_write_is_told_to_all_who_staged_and_heals(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(partitions=2)
            a, b = await grouping(rig, topic)
            c, reader = await rig.peer(), await rig.peer()
            assert (await a.produce(topic, BIG)).error_code == 0
            partition = rig.partition(topic)
            end, size = partition.log.log_end_offset, partition.log.size_bytes
            sequenced = batch([b"s"], producer_id=9, producer_epoch=0, base_sequence=0)
            await rig.peer()
            with full_disk(partition):
                a.deliver(produce_request(topic, batch([b"lost"])), 12)
                b.deliver(produce_request(topic, sequenced), 12)
                c.deliver(produce_request(topic, sequenced), 12)  # a duplicate of what is staged
                reader.deliver(produce_request(topic, None, partition=1), 12)
                for peer in (a, b, c):
                    answer = one(await peer.receive())
                    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                    assert answer.base_offset == -1
                    assert answer.error_message
                # Another partition is not concerned, and reads go on.
                assert one(await reader.receive()).error_code == 0
                fetched = await reader.fetch(topic, 0, partition_max_bytes=1 << 20)
                assert [h.base_offset for h in heads(fetched.records)] == list(range(end))
                assert (await a.produce(topic)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (partition.log.log_end_offset, partition.log.size_bytes) == (end, size)
            assert partition.high_watermark == end
            assert rig.broker.appends.failures >= 1
            assert partition.log.failure is not None

            async def healed() -> Any:
                answer = await b.produce(topic, sequenced)
                return answer if answer.error_code == 0 else None

            answer = None
            while answer is None:
                answer = await healed()
                await asyncio.sleep(0.02)
            assert answer.base_offset == end, "what was refused had left something behind"
            assert partition.log.failure is None
            assert await stored(reader, topic) == [b"v", b"v", b"x" * 200_000, b"s"]

    run(test)


def test_a_refused_write_of_a_lone_connection(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            peer = await rig.peer()
            await peer.produce(topic, BIG)
            with full_disk(rig.partition(topic)):
                assert (await peer.produce(topic)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            partition = rig.partition(topic)
            assert partition.counters.failed_produce_requests == 1
            assert partition.log.log_end_offset == 1

    run(test)


def test_settings_reach_the_open_partition(tmp_path: Path) -> None:
    async def test() -> None:
        from penstock.wire.messages.incremental_alter_configs import (
            AlterableConfig,
            AlterConfigsResource,
            IncrementalAlterConfigsRequest,
        )

        async with running(tmp_path) as rig:
            topic = await rig.topic()
            peer = await rig.peer()
            assert (await peer.produce(topic, BIG)).error_code == 0
            change = AlterableConfig(name="max.message.bytes", config_operation=0, value="1000")
            resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
            answer = await peer.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
            assert answer.responses[0].error_code == 0
            assert (await peer.produce(topic, BIG)).error_code == ErrorCode.MESSAGE_TOO_LARGE
            assert (await peer.produce(topic)).error_code == 0

    run(test)


def test_a_deleted_topic_takes_its_log_and_a_new_one_begins_empty(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, log_segment_delete_delay_ms="0") as rig:
            topic = await rig.topic()
            peer = await rig.peer()
            await peer.produce(topic)
            await rig.delete_topic("t")
            answer = await peer.produce(topic)
            assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (await peer.produce(topic, version=13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
            again = await rig.topic()
            assert (await peer.produce(again)).base_offset == 0
            assert (await peer.produce(topic, version=13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
            await until(lambda: not list(tmp_path.glob("*-delete")), 5)

    run(test)
