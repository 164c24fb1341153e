"""A node that stops: clients that wait are let go, and a second signal waits for nobody."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from penstock.serving import append
from support import calls
from support.batches import batch
from unit.net.served import run
from unit.partitions.replica_rig import staged
from unit.serving.rig import one, produce_request, running, until, waiting_reads

LONG_MS = 60_000
STOP_SECONDS_MAX = 15.0


def test_a_long_poll_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    """Consumers always wait for something; they are answered (or let go) at once."""

    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            peers = [await rig.peer() for _ in range(3)]
            for peer in peers:
                peer.send(calls.fetch_request([(topic, {0: 0})], 16, max_wait_ms=LONG_MS), 16)
            await until(lambda: len(waiting_reads(rig.partition(topic))) == 3)
            began = time.monotonic()
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await rig.stop()
            assert time.monotonic() - began < STOP_SECONDS_MAX

    run(test)


def test_a_second_signal_ends_the_waiting_for_clients(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(flush_messages="1")
            peer = await rig.peer()
            with rig.held_flushes() as release:
                peer.send(produce_request(topic, None, timeout_ms=LONG_MS), 12)
                await until(lambda: rig.partition(topic).log.log_end_offset == 1)
                stopping = rig.stop()
                await asyncio.sleep(0.05)
                assert rig.server.connections
                rig.node.hurry()
                await until(lambda: not rig.server.connections, 2)
                release.set()
                await stopping

    run(test)


def test_what_was_acknowledged_is_there_after_a_stop(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(partitions=3)
            peer = await rig.peer()
            for i in range(30):
                assert (await peer.produce(topic, partition=i % 3)).error_code == 0
        async with running(tmp_path) as rig:
            assert rig.broker.logs.clean_start
            for index in range(3):
                assert rig.partition(topic, index).high_watermark == 10
            peer = await rig.peer()
            assert (await peer.produce(topic, version=13)).base_offset == 10

    run(test)


def test_a_long_poll_that_comes_while_the_node_stops_waits_for_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            peer = await rig.peer()
            rig.broker.end_waiting()
            assert (await peer.fetch(topic, max_wait_ms=LONG_MS)).high_watermark == 0

    run(test)


@pytest.mark.parametrize("hands_over", [True, False])
def test_what_the_replicas_do_not_decide_is_given_up(tmp_path: Path, hands_over: bool) -> None:
    """The third replica is gone, and still counts as in sync. Nobody knows what will be committed:
    the producer is told nothing, and sends its batch again, to the next leader.
    """

    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            topic = stage.topic(1, 2, 3)
            first = stage.actors[1]
            idle, peer = await first.peer(), await first.peer()
            peer.send(produce_request(topic, numbered(0), timeout_ms=LONG_MS), 12)
            await until(lambda: stage.actors[2].partition().log.log_end_offset == 1)
            if hands_over:
                stage.elect(2)
            began = time.monotonic()
            first.broker.end_waiting()
            await first.server.stop(STOP_SECONDS_MAX)
            assert time.monotonic() - began < STOP_SECONDS_MAX / 2
            assert await peer.is_closed()
            assert await idle.is_closed()
            if hands_over:
                again = await stage.actors[2].peer()
                again.send(produce_request(topic, numbered(0), timeout_ms=LONG_MS), 12)
                stage.change(isr=[1, 2])
                assert one(await again.receive()).base_offset == 0
                assert stage.actors[2].partition().log.log_end_offset == 1

    run(test)


def test_what_the_replicas_decide_while_the_node_stops_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append, "UNDECIDED_S_MAX", STOP_SECONDS_MAX)

    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            topic = stage.topic(1, 2, 3)
            first = stage.actors[1]
            kept, cut = await first.peer(), await first.peer()
            kept.send(produce_request(topic, None, timeout_ms=LONG_MS), 12)
            await until(lambda: stage.actors[2].partition().log.log_end_offset == 1)
            follower = stage.actors[2].partition()
            stage.elect(2)
            first.broker.end_waiting()
            stopping = asyncio.create_task(first.server.stop(STOP_SECONDS_MAX))
            await asyncio.sleep(0.05)
            assert not stopping.done()
            stage.change(isr=[1, 2])
            assert one(await kept.receive()).base_offset == 0
            await stopping
            assert follower.high_watermark == 1
            assert await cut.is_closed()

    run(test)


def numbered(sequence: int) -> bytes:
    return batch([b"v"], producer_id=77, producer_epoch=0, base_sequence=sequence)
