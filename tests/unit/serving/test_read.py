"""The fetch path: when it answers, with how much, and what ends its waiting."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from support import calls
from support.batches import batch, heads
from support.calls import RawTopic
from unit.net.served import run
from unit.serving.rig import Peer, Rig, running, until, waiting_reads

LONG_MS = 60_000
PROMPT_SECONDS_MAX = 10.0  # far below LONG_MS, far above what a busy machine takes
KB = batch([b"x" * 930])  # about a kilobyte
SIZE = len(KB)


async def ask(peer: Peer, wanted: list[tuple[RawTopic, dict[int, int]]], **how: Any) -> Any:
    version = how.pop("version", 16)
    return await peer.call(calls.fetch_request(wanted, version, **how), version)


async def filled(rig: Rig, topic: RawTopic, peer: Peer, per_partition: dict[int, int]) -> None:
    for index, count in per_partition.items():
        for _ in range(count):
            assert (await peer.produce(topic, KB, partition=index)).error_code == 0


def sizes(answer: Any) -> dict[int, int]:
    return {
        p.partition_index: len(p.records or b"") for t in answer.responses for p in t.partitions
    }


# -- waiting ---------------------------------------------------------------------------------------


def test_max_wait_ends_in_an_empty_answer(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            peer = await rig.peer()
            began = time.monotonic()
            data = await peer.fetch(topic, 0, max_wait_ms=150)
            assert 0.14 < time.monotonic() - began < PROMPT_SECONDS_MAX
            assert (data.error_code, bytes(data.records), data.high_watermark) == (0, b"", 0)
            assert not waiting_reads(rig.partition(topic))

    run(test)


def test_records_wake_those_who_wait(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(partitions=2)
            producer = await rig.peer()
            readers = [await rig.peer() for _ in range(3)]
            waiting = [
                asyncio.create_task(ask(r, [(topic, {0: 0, 1: 0})], max_wait_ms=LONG_MS))
                for r in readers
            ]
            await until(lambda: len(waiting_reads(rig.partition(topic, 1))) == 3)
            await producer.produce(topic, KB, partition=1)
            for answer in await asyncio.gather(*waiting):
                assert sizes(answer) == {0: 0, 1: SIZE}
            assert not waiting_reads(rig.partition(topic, 0))
            assert not waiting_reads(rig.partition(topic, 1))

    run(test)


def test_min_bytes_counts_over_partitions_and_over_time(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(partitions=2)
            producer, reader = await rig.peer(), await rig.peer()
            await producer.produce(topic, KB)
            wanted = [(topic, {0: 0, 1: 0})]
            waiting = asyncio.create_task(
                ask(reader, wanted, max_wait_ms=LONG_MS, min_bytes=3 * SIZE)
            )
            await until(lambda: waiting_reads(rig.partition(topic)))
            await producer.produce(topic, KB, partition=1)
            await asyncio.sleep(0.02)
            assert not waiting.done()
            await producer.produce(topic, KB)
            assert sizes(await waiting) == {0: 2 * SIZE, 1: SIZE}

    run(test)


def test_min_bytes_that_are_there_do_not_wait(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(partitions=2)
            peer = await rig.peer()
            await filled(rig, topic, peer, {0: 1, 1: 1})
            answer = await ask(
                peer, [(topic, {0: 0, 1: 0})], max_wait_ms=LONG_MS, min_bytes=2 * SIZE
            )
            assert sizes(answer) == {0: SIZE, 1: SIZE}
            answer = await ask(peer, [(topic, {0: 1})], max_wait_ms=LONG_MS, min_bytes=0)
            assert sizes(answer) == {0: 0}

    run(test)


def test_min_bytes_beyond_max_bytes_does_not_wait_for_what_cannot_be_sent(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            peer = await rig.peer()
            await filled(rig, topic, peer, {0: 5})
            began = time.monotonic()
            answer = await ask(
                peer, [(topic, {0: 0})], max_wait_ms=LONG_MS, min_bytes=1 << 20, max_bytes=2 * SIZE
            )
            assert time.monotonic() - began < PROMPT_SECONDS_MAX
            assert sizes(answer) == {0: 2 * SIZE}

    run(test)


def test_an_error_ends_waiting(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            peer = await rig.peer()
            began = time.monotonic()
            answer = await ask(
                peer, [(topic, {0: 0, 9: 0})], version=12, max_wait_ms=LONG_MS, min_bytes=1000
            )
            codes = {p.partition_index: p.error_code for p in answer.responses[0].partitions}
            assert codes == {0: 0, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            assert time.monotonic() - began < PROMPT_SECONDS_MAX

    run(test)


@pytest.mark.parametrize("min_bytes", [1, 1000])
def test_a_deleted_topic_wakes_those_who_wait(tmp_path: Path, min_bytes: int) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic, other = await rig.topic(), await rig.topic("other")
            peer = await rig.peer()
            waiting = asyncio.create_task(
                ask(
                    peer,
                    [(topic, {0: 0}), (other, {0: 0})],
                    max_wait_ms=LONG_MS,
                    min_bytes=min_bytes,
                )
            )
            await until(lambda: waiting_reads(rig.partition(topic)))
            await rig.delete_topic("t")
            async with asyncio.timeout(2):
                answer = await waiting
            codes = [p.error_code for t in answer.responses for p in t.partitions]
            assert codes == [ErrorCode.UNKNOWN_TOPIC_ID, 0]
            assert not waiting_reads(rig.partition(other))

    run(test)


@pytest.mark.parametrize(
    ("offset", "min_bytes", "code"), [(3, 1, 0), (0, 1 << 20, ErrorCode.OFFSET_OUT_OF_RANGE)]
)
def test_records_deleted_from_under_a_reader_wake_it(
    tmp_path: Path, offset: int, min_bytes: int, code: int
) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            peer, admin = await rig.peer(), await rig.peer()
            for _ in range(3):
                await admin.produce(topic)
            waiting = asyncio.create_task(
                ask(peer, [(topic, {0: offset})], max_wait_ms=LONG_MS, min_bytes=min_bytes)
            )
            await until(lambda: waiting_reads(rig.partition(topic)))
            part = DeleteRecordsPartition(partition_index=0, offset=-1)
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name="t", partitions=[part])], timeout_ms=1000
            )
            answer = await admin.call(request, 2)
            assert answer.topics[0].partitions[0].low_watermark == 3
            async with asyncio.timeout(2):
                [of_topic] = (await waiting).responses
            assert of_topic.partitions[0].error_code == code

    run(test)


def test_a_reader_that_goes_away_is_not_kept(tmp_path: Path) -> None:
    """Its waiting could last for weeks, as long as `max_wait` says."""

    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            for _ in range(5):
                peer = await rig.peer()
                peer.send(calls.fetch_request([(topic, {0: 0})], 16, max_wait_ms=2**31 - 1), 16)
                await until(lambda: waiting_reads(rig.partition(topic)))
                peer.close()
            await until(lambda: not rig.server.connections)
            await until(lambda: not waiting_reads(rig.partition(topic)), 2)

    run(test)


# -- how much --------------------------------------------------------------------------------------


def test_the_first_batch_comes_whole(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(partitions=3)
            peer = await rig.peer()
            await filled(rig, topic, peer, {1: 3, 2: 3})
            for limits in (
                {"partition_max_bytes": 10},
                {"max_bytes": 10},
                {"max_bytes": 0},
                {"partition_max_bytes": 0},
            ):
                answer = await ask(peer, [(topic, {0: 0, 1: 0, 2: 0})], **limits)
                assert sizes(answer) == {0: 0, 1: SIZE, 2: 0}, limits

    run(test)


def test_the_room_is_shared_over_partitions(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(partitions=4)
            peer = await rig.peer()
            await filled(rig, topic, peer, dict.fromkeys(range(4), 5))
            wanted = [(topic, dict.fromkeys(range(4), 0))]
            answer = await ask(peer, wanted, partition_max_bytes=2 * SIZE, max_bytes=5 * SIZE)
            assert sizes(answer) == {0: 2 * SIZE, 1: 2 * SIZE, 2: SIZE, 3: 0}
            # A limit inside a batch gives the whole batches below it.
            answer = await ask(peer, wanted, partition_max_bytes=2 * SIZE + 7, max_bytes=1 << 20)
            assert sizes(answer) == dict.fromkeys(range(4), 2 * SIZE)

    run(test)


def test_the_nodes_own_limit_holds(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, fetch_max_bytes="2048") as rig:
            topic = await rig.topic()
            peer = await rig.peer()
            await filled(rig, topic, peer, {0: 5})
            assert sizes(await ask(peer, [(topic, {0: 0})])) == {0: 2048 // SIZE * SIZE}

    run(test)


def test_offsets_inside_a_batch_and_at_the_end(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            peer = await rig.peer()
            for _ in range(2):
                await peer.produce(topic, batch([b"a", b"b", b"c"]))
            for offset, first in ((0, 0), (2, 0), (3, 3), (5, 3)):
                data = await peer.fetch(topic, offset)
                assert heads(data.records)[0].base_offset == first
                assert (data.high_watermark, data.last_stable_offset) == (6, 6)
                assert data.log_start_offset == 0
            assert bytes((await peer.fetch(topic, 6)).records) == b""
            for offset in (7, -1, 2**62):
                data = await peer.fetch(topic, offset)
                assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    run(test)


def test_leader_epochs_fence(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            peer = await rig.peer()
            epoch = rig.partition(topic).leader_epoch
            assert (await peer.fetch(topic, 0, current_leader_epoch=epoch)).error_code == 0
            data = await peer.fetch(topic, 0, current_leader_epoch=epoch + 1)
            assert data.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
            rig.partition(topic).leader_epoch = epoch + 2
            data = await peer.fetch(topic, 0, current_leader_epoch=epoch)
            assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH

    run(test)


@pytest.mark.parametrize("isolation", [0, 1])
def test_isolation_levels(tmp_path: Path, isolation: int) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            peer = await rig.peer()
            await peer.produce(topic)
            data = await peer.fetch(topic, 0, isolation_level=isolation)
            assert len(heads(data.records)) == 1
            assert data.aborted_transactions == (None if isolation == 0 else [])
            data = await peer.fetch(topic, 1, isolation_level=isolation)
            assert data.aborted_transactions == (None if isolation == 0 else [])

    run(test)


def test_damaged_data_is_reported_and_never_served(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(partitions=2)
            peer = await rig.peer()
            await filled(rig, topic, peer, {0: 3, 1: 1})
            path = tmp_path / "t-0" / f"{0:020d}.log"
            raw = bytearray(path.read_bytes())
            raw[SIZE + 100] ^= 0xFF
            path.write_bytes(raw)
            answer = await ask(peer, [(topic, {0: 0, 1: 0})], max_wait_ms=LONG_MS)
            codes = {p.partition_index: p.error_code for p in answer.responses[0].partitions}
            assert codes == {0: ErrorCode.CORRUPT_MESSAGE, 1: 0}
            assert sizes(answer) == {0: 0, 1: SIZE}
            assert rig.broker.reads.corrupt_reads == 1
            # What lies before and behind it is still good.
            assert (await peer.fetch(topic, 0, partition_max_bytes=1)).error_code == 0
            assert (await peer.fetch(topic, 2)).error_code == 0

    run(test)


# -- sessions --------------------------------------------------------------------------------------


def test_a_session_over_the_wire(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(partitions=3)
            peer = await rig.peer()
            await filled(rig, topic, peer, {0: 1, 1: 1})
            offsets = {0: 0, 1: 0, 2: 0}
            full = await ask(peer, [(topic, offsets)], session_id=0, session_epoch=0)
            assert full.session_id > 0
            assert sizes(full) == {0: SIZE, 1: SIZE, 2: 0}
            how: dict[str, Any] = {"session_id": full.session_id}
            # The client moves on; there is nothing new, so nothing is sent.
            news = await ask(peer, [(topic, {0: 1, 1: 1})], session_epoch=1, **how)
            assert (news.error_code, news.session_id, sizes(news)) == (0, full.session_id, {})
            await peer.produce(topic, KB, partition=2)
            news = await ask(peer, [], session_epoch=2, **how)
            assert sizes(news) == {2: SIZE}
            wrong = await ask(peer, [], session_epoch=2, **how)
            assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
            await rig.delete_topic("t")
            gone = await ask(peer, [], session_epoch=3, **how)
            codes = {p.partition_index: p.error_code for p in gone.responses[0].partitions}
            assert codes == dict.fromkeys(range(3), ErrorCode.UNKNOWN_TOPIC_ID)
            unknown = await ask(peer, [], session_id=full.session_id + 1, session_epoch=1)
            assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    run(test)


def test_an_incremental_fetch_waits_and_is_woken(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(partitions=2)
            peer, producer = await rig.peer(), await rig.peer()
            full = await ask(peer, [(topic, {0: 0, 1: 0})], session_epoch=0)
            waiting = asyncio.create_task(
                ask(peer, [], session_id=full.session_id, session_epoch=1, max_wait_ms=LONG_MS)
            )
            await until(lambda: waiting_reads(rig.partition(topic)))
            await producer.produce(topic, KB, partition=1)
            assert sizes(await waiting) == {1: SIZE}

    run(test)


def test_a_partition_with_room_for_a_part_of_a_batch_is_not_forgotten(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(partitions=2)
            peer = await rig.peer()
            await filled(rig, topic, peer, {0: 1, 1: 1})
            room: dict[str, Any] = {"max_bytes": SIZE + SIZE // 2}
            full = await ask(peer, [(topic, {0: 0, 1: 0})], session_epoch=0, **room)
            assert sizes(full) == {0: SIZE, 1: 0}
            how: dict[str, Any] = {"session_id": full.session_id, "session_epoch": 1}
            news = await ask(peer, [(topic, {0: 1})], max_wait_ms=LONG_MS, **how, **room)
            assert sizes(news) == {1: SIZE}

    run(test)
