"""Turns of produce requests that are written beside the loop: order, failures, a slow disk."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.partitions.turns import TURN_BYTES_MAX, WRITING_TURNS_MAX, Turns
from penstock.wire.records import read_records
from support.batches import batch, heads
from support.calls import RawTopic
from unit.net.served import run
from unit.serving.rig import Peer, Rig, full_disk, produce_request, running, until

LARGE = TURN_BYTES_MAX // 2 + 1
"""Two of them are a turn."""
PEERS = 6
EACH = 4


class Writes:
    """Who writes large pieces; can be held up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[str] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        real = os.pwritev

        def write(fd: int, buffers: Any, position: int) -> int:
            self.threads.append(threading.current_thread().name)
            assert self.may_go_on.wait(30)
            return real(fd, buffers, position)

        monkeypatch.setattr(os, "pwritev", write)

    @property
    def beside(self) -> int:
        return sum(name.startswith("log-write") for name in self.threads)

    @contextmanager
    def held(self) -> Iterator[None]:
        self.may_go_on.clear()
        try:
            yield
        finally:
            self.may_go_on.set()


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Writes:
    return Writes(monkeypatch)


def large(sender: int, number: int) -> bytes:
    return bytes([sender, number]) * (LARGE // 2)


def send(peer: Peer, topic: RawTopic, value: bytes, **how: Any) -> None:
    peer.send(produce_request(topic, batch([value]), 12, **how), 12)


async def answers(peer: Peer, count: int) -> list[Any]:
    found = []
    for _ in range(count):
        [of_topic] = (await peer.receive()).responses
        [of_partition] = of_topic.partition_responses
        found.append(of_partition)
    return found


def send_turn(peers: list[Peer], topic: RawTopic, number: int) -> None:
    """As much as makes a turn, of the first two peers, within one turn of the loop."""
    for sender, peer in enumerate(peers[:2]):
        peer.deliver(produce_request(topic, batch([large(sender, number)]), 12), 12)


async def acknowledged(peers: list[Peer]) -> None:
    """Each gets one answer, and no error."""
    for peer in peers:
        assert [answer.error_code for answer in await answers(peer, 1)] == [0]


async def stored(peer: Peer, topic: RawTopic, partition: int = 0) -> list[bytes]:
    """The first bytes of every value, in the order of offsets."""
    found: list[bytes] = []
    offset = 0
    while True:
        records = (await peer.fetch(topic, offset, partition=partition, max_wait_ms=0)).records
        if not records:
            return found
        view = bytes(records)
        for head in heads(records):
            assert head.base_offset == offset
            size = 12 + int.from_bytes(view[8:12], "big")
            [record] = read_records(view[:size])
            found.append((record.value or b"")[:2])
            view = view[size:]
            offset = head.last_offset + 1


async def grouping(rig: Rig, topic: RawTopic) -> list[Peer]:
    """Peers that all produce, so that what they send is grouped."""
    peers = [await rig.peer() for _ in range(PEERS)]
    for peer in peers:
        assert (await peer.produce(topic, batch([b"small"]))).error_code == 0
    return peers


def test_large_turns_are_written_beside_the_loop_and_acknowledged_in_order(
    tmp_path: Path, writes: Writes
) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            small, topic = await rig.topic("small"), await rig.topic("large", partitions=2)
            peers = await grouping(rig, small)
            for number in range(EACH):
                for sender, peer in enumerate(peers):
                    send(peer, topic, large(sender, number), partition=sender % 2)
            for sender, peer in enumerate(peers):
                came = await answers(peer, EACH)
                assert [answer.error_code for answer in came] == [0] * EACH
                offsets = [answer.base_offset for answer in came]
                values = await stored(peer, topic, sender % 2)
                assert [values[offset] for offset in offsets] == [
                    bytes([sender, number]) for number in range(EACH)
                ]
                assert offsets == sorted(offsets)
            assert writes.beside > 2

    run(test)


def test_a_slow_disk_does_not_hold_up_others(tmp_path: Path, writes: Writes) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            small, topic = await rig.topic("small"), await rig.topic("large")
            peers = await grouping(rig, small)
            with writes.held():
                send_turn(peers, topic, 0)
                await until(lambda: writes.beside)
                # Others are answered, but for those who produce behind it.
                assert (await peers[2].fetch(topic, 0, max_wait_ms=0)).high_watermark == 0
                assert len((await peers[2].fetch(small, 0)).records) > 0
                send(peers[3], small, b"behind")
                assert await peers[3].silent()
                assert await peers[0].silent()
            await acknowledged([*peers[:2], peers[3]])

    run(test)


def test_the_loop_waits_when_too_many_turns_are_being_written(
    tmp_path: Path, writes: Writes
) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            small, topic = await rig.topic("small"), await rig.topic("large")
            peers = await grouping(rig, small)
            count = 2 * (WRITING_TURNS_MAX + 2)
            writes.may_go_on.clear()
            release = threading.Timer(0.5, writes.may_go_on.set)
            release.start()
            for number in range(count):
                send(peers[number % PEERS], topic, large(number % PEERS, number))
            for sender, peer in enumerate(peers):
                for answer in await answers(peer, len(range(sender, count, PEERS))):
                    assert answer.error_code == 0
            release.join()
            assert len(await stored(peers[0], topic)) == count

    run(test)


def test_what_changes_a_log_otherwise_waits_for_what_is_being_written(
    tmp_path: Path, writes: Writes
) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            small, topic = await rig.topic("small"), await rig.topic("large")
            peers = await grouping(rig, small)
            writes.may_go_on.clear()
            send_turn(peers, topic, 0)
            await until(lambda: writes.beside)
            threading.Timer(0.1, writes.may_go_on.set).start()
            rig.broker.turns.write_all()
            log = rig.partition(topic).log
            assert (log.log_end_offset, bool(log.writes)) == (2, False)
            log.roll()
            await acknowledged(peers[:2])

    run(test)


def test_a_full_disk_fails_all_that_was_begun_and_staged_behind_it(
    tmp_path: Path, writes: Writes
) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            small, topic = await rig.topic("small"), await rig.topic("large")
            peers = await grouping(rig, small)
            send_turn(peers, topic, 0)
            await acknowledged(peers[:2])
            partition = rig.partition(topic)
            with full_disk(partition):
                with writes.held():
                    send_turn(peers, topic, 1)  # the worker has it: the rest is grouped behind it
                    for sender, peer in enumerate(peers[2:5], 2):  # a turn and a half
                        send(peer, topic, large(sender, 1))
                    await until(lambda: len(partition.log._staged.batches) == 1)
                for peer in peers[:5]:
                    [answer] = await answers(peer, 1)
                    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert partition.log.log_end_offset == 2
            await asyncio.sleep(1.1)  # the pause after a refused write
            send_turn(peers, topic, 2)
            await acknowledged(peers[:2])
            values = await stored(peers[0], topic)
            assert sorted(values) == [bytes([s, n]) for s in range(2) for n in (0, 2)]

    run(test)


def test_a_node_that_stops_writes_what_is_staged(tmp_path: Path, writes: Writes) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            small, topic = await rig.topic("small"), await rig.topic("large")
            peers = await grouping(rig, small)
            for sender, peer in enumerate(peers[:3]):
                send(peer, topic, large(sender, 0))
            log = rig.partition(topic).log
            await until(lambda: writes.beside)
            await rig.stop()
            assert log.log_end_offset >= 2
            assert not log.writes

    run(test)


class Started:
    """A partition whose acknowledgement begins another request, for one that is being written."""

    def __init__(self, turns: Turns, log: list[str], write: Any = None, then: Any = None) -> None:
        self._turns, self._log, self._write, self._then = turns, log, write, then

    def begin_write(self) -> Any:
        return self._write

    def write_staged(self) -> None:
        self._log.append("small written")
        if self._then is not None:
            self._turns.begin(self)
            self._turns.add(self._then, TURN_BYTES_MAX + 1)
            self._turns.end()

    def not_written(self, error: Any) -> None:
        raise AssertionError(error)

    def end_write(self, write: Any) -> None:
        write.done.wait(5)
        self._log.append("large ended" if write.done.is_set() else "never run")


class Run:
    def __init__(self) -> None:
        self.done = threading.Event()

    def run(self) -> None:
        self.done.set()


@pytest.mark.uncompiled
def test_nobody_is_told_before_the_worker_has_what_was_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.partitions.turns.WRITING_TURNS_MAX", 1)

    async def test() -> None:
        turns, log = Turns(), []
        large = Started(turns, log, Run())
        small = Started(turns, log, then=large)
        for source in (1, 2):  # grouping from now on
            turns.begin(source)
            turns.end()
        turns.begin(3)
        turns.add(large, TURN_BYTES_MAX)
        turns.add(small, 1)
        turns.end()
        await asyncio.get_running_loop().run_in_executor(None, turns._worker.shutdown)
        assert log[:2] == ["small written", "large ended"]

    run(test)


class Waking:
    """A partition whose write wakes a read."""

    def __init__(self, turns: Turns, log: list[str], name: str) -> None:
        self._turns, self._log, self._name = turns, log, name

    def write_staged(self) -> None:
        self._log.append(self._name)
        assert self._turns.after_writes(lambda: self._log.append("reads"))


@pytest.mark.uncompiled
def test_reads_are_woken_once_after_all_partitions_of_a_turn_in_the_same_turn_of_the_loop() -> None:
    async def test() -> None:
        turns, log = Turns(), []
        assert not turns.after_writes(lambda: log.append("never"))
        turns.begin(1)
        for name in ("a", "b"):
            turns.add(Waking(turns, log, name), 1)  # type: ignore[arg-type]
        turns.end()
        assert log == ["a", "b", "reads"]
        assert not turns.after_writes(lambda: log.append("never"))
        turns.stop()

    run(test)
