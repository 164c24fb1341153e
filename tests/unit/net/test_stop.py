"""Stopping: what is in flight is answered, then closed; what never ends is cut."""

from __future__ import annotations

import asyncio
import time

import pytest

from penstock.net.server import NetLimits, Server
from unit.net.served import PRODUCE, Script, frame, run, served, until


def test_answers_in_flight_are_delivered_before_the_end() -> None:
    async def test() -> None:
        async with served() as net:
            net.script.at_once = False
            client, idle = await net.client(), await net.client()
            await client.send(frame(1, key=PRODUCE) + frame(2, key=PRODUCE) + frame(3))
            await until(lambda: net.script.seen == [1, 2] and net.used)
            stop = asyncio.create_task(net.server.stop(5.0))
            assert await idle.is_closed()
            # Whatever comes now is not read any more; what had arrived is still answered.
            client.send_unread(frame(4))
            net.script.at_once = True
            net.script.body = lambda _: b"late"
            net.script.finish(2)
            assert not stop.done()
            net.script.finish(1)
            assert [await client.receive() for _ in range(3)] == [(i, b"late") for i in (1, 2, 3)]
            assert await client.is_closed()
            await stop
            assert net.script.seen == [1, 2, 3]
            assert not net.server.connections

    run(test)


def test_large_answers_are_flushed_before_the_end() -> None:
    async def test() -> None:
        async with served(send_buffer_bytes=64 * 1024) as net:
            net.script.at_once = False
            client = await net.client()
            await client.send(frame(1) + frame(2))
            await until(lambda: net.script.seen == [1])
            stop = asyncio.create_task(net.server.stop(10.0))
            await asyncio.sleep(0)
            net.script.at_once = True
            net.script.body = lambda _: bytes(4 << 20)
            net.script.finish(1)
            for i in (1, 2):
                assert await client.receive() == (i, bytes(4 << 20))
            assert await client.is_closed()
            await stop

    run(test)


@pytest.mark.parametrize("kind", ["never answered", "never read"])
def test_what_does_not_end_is_cut_after_the_grace_time(kind: str) -> None:
    async def test() -> None:
        async with served(send_buffer_bytes=64 * 1024) as net:
            net.script.at_once = kind == "never read"
            net.script.body = lambda _: bytes(16 << 20)
            client = await net.client()
            client.stop_reading()
            await client.send(frame(1) + frame(2))
            await until(lambda: net.script.seen)
            began = time.monotonic()
            await net.server.stop(0.3)
            assert 0.29 < time.monotonic() - began < 10
            await until(lambda: not net.server.connections)

    run(test)


def test_half_a_frame_does_not_hold_up_the_end() -> None:
    async def test() -> None:
        async with served() as net:
            client = await net.client()
            await client.send(frame(1, body=b"x" * 100)[:50])
            await until(lambda: net.used)
            began = time.monotonic()
            await net.server.stop(40.0)
            assert time.monotonic() - began < 15
            assert await client.is_closed()
            assert net.used == 0

    run(test)


def test_after_a_stop_nobody_gets_in() -> None:
    async def test() -> None:
        async with served() as net:
            await net.server.stop(0.0)
            with pytest.raises(ConnectionRefusedError):
                await net.client()

    run(test)


def test_the_address_is_taken_before_it_is_served_and_given_back() -> None:
    async def test() -> None:
        script = Script()
        first, second = (Server("TEST", NetLimits(), script, script.answered) for _ in range(2))
        host, port = first.bind("127.0.0.1", 0)
        await first.start()
        with pytest.raises(OSError, match="in use"):
            second.bind(host, port)
        await first.stop(0.0)
        assert second.bind(host, port) == (host, port)
        await second.stop(0.0)

    run(test)
