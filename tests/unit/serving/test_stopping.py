"""A node that stops: clients that wait are let go, and a second signal waits for nobody."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from support import calls
from unit.net.served import run
from unit.serving.rig import produce_request, running, until, waiting_reads

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
