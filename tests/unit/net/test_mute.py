"""A muted connection: what has been answered goes out, nothing starts, nothing is read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from penstock.net.admission import Admission
from penstock.net.connection import WAITING_REQUESTS_MAX, Connection
from unit.net.idle_clock import IDLE_MS, Clock, swept
from unit.net.served import PRODUCE, Served, frame, run, served, settled, until

MIB = 1 << 20
LONG_S = 3600.0  # no test takes so long
SHORT_S = 0.2
SHORTEST_S = SHORT_S - 0.05  # the clock of a loop stands still during a turn


def muted_by(first: int, seconds: float) -> Callable[[Connection, int], bool]:
    """A handler that mutes before it answers the request `first`, and no other."""

    def mute(connection: Connection, correlation_id: int) -> bool:
        if correlation_id == first:
            connection.mute(seconds)
        return False

    return mute


def only(net: Served) -> Connection:
    [connection] = net.server.connections
    return connection


def test_the_answer_goes_out_and_the_next_request_waits_for_the_end() -> None:
    async def test() -> None:
        async with served() as net:
            net.script.hook = muted_by(1, SHORT_S)
            client = await net.client()
            loop = asyncio.get_running_loop()
            before = loop.time()
            await client.send(frame(1) + frame(2))
            assert await client.receive() == (1, b"")
            assert await client.receive() == (2, b"")
            assert loop.time() - before >= SHORTEST_S
            await client.send(frame(3))
            assert await client.receive() == (3, b"")

    run(test)


def test_nothing_is_read_meanwhile() -> None:
    async def test() -> None:
        async with served(receive_buffer_bytes=64 * 1024) as net:
            net.script.hook = muted_by(1, LONG_S)
            client = await net.client()
            await client.send(frame(1))
            assert await client.receive() == (1, b"")
            size = 32 * MIB
            client.send_unread(frame(2, body=bytes(size)))
            await settled(lambda: client.writer.transport.get_write_buffer_size())
            assert client.writer.transport.get_write_buffer_size() > 0
            assert net.used == 0
            assert net.script.seen == [1]

    run(test)


@pytest.mark.parametrize("count", [10, WAITING_REQUESTS_MAX + 1, 5000])
def test_what_came_with_it_waits_and_keeps_its_order(count: int) -> None:
    async def test() -> None:
        async with served() as net:
            net.script.hook = muted_by(3, SHORT_S)
            client = await net.client()
            client.send_unread(b"".join(frame(i) for i in range(count)))
            assert await client.receive_ids(4) == list(range(4))
            assert net.script.seen == list(range(4))
            assert await client.receive_ids(count - 4) == list(range(4, count))

    run(test)


def test_answers_of_requests_that_had_started_go_out() -> None:
    async def test() -> None:
        async with served() as net:
            net.script.at_once = False
            client = await net.client()
            await client.send(b"".join(frame(i, key=PRODUCE) for i in range(4)))
            await until(lambda: len(net.script.exchanges) == 4)
            only(net).mute(LONG_S)
            await client.send(frame(4, key=PRODUCE))
            for i in range(4):
                net.script.finish(i)
            assert await client.receive_ids(4) == list(range(4))
            assert await settled(lambda: net.script.seen) == list(range(4))

    run(test)


def test_the_latest_end_counts_and_there_is_one_timer() -> None:
    async def test() -> None:
        async with served() as net:
            client = await net.client()
            await client.send(frame(0))
            await client.receive()
            connection, loop = only(net), asyncio.get_running_loop()
            before = loop.time()
            connection.mute(SHORT_S / 4)
            timer = connection._mute_timer
            connection.mute(SHORT_S)
            connection.mute(0.0)
            assert connection._mute_timer is timer
            await client.send(frame(1))
            assert await client.receive() == (1, b"")
            assert loop.time() - before >= SHORTEST_S
            assert connection._mute_timer is None

    run(test)


def test_it_is_not_idle_until_some_time_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    async def test() -> None:
        async with served(idle_ms_max=IDLE_MS) as net:
            client = await net.client()
            await until(lambda: net.server.connections)
            connection = only(net)
            connection.mute(LONG_S)
            clock.pass_ms(2 * IDLE_MS)
            await swept(net)
            assert not net.server.refused_total
            connection._muted_until_s = 0.0
            connection._mute_over()
            await swept(net)
            assert not net.server.refused_total
            clock.pass_ms(2 * IDLE_MS)
            assert await client.is_closed()

    run(test)


def test_a_peer_that_reads_again_is_still_muted() -> None:
    async def test() -> None:
        async with served(send_buffer_bytes=64 * 1024) as net:
            net.script.body = lambda i: bytes(16 * MIB) if i == 1 else b""
            net.script.hook = muted_by(1, LONG_S)
            client = await net.client()
            client.stop_reading()
            await client.send(frame(1) + frame(2))
            await until(lambda: net.script.seen == [1])
            client.go_on_reading()
            correlation_id, body = await client.receive()
            assert (correlation_id, len(body)) == (1, 16 * MIB)
            assert await settled(lambda: net.script.seen) == [1]

    run(test)


def test_large_frames_wait_too() -> None:
    async def test() -> None:
        async with served() as net:
            net.script.hook = muted_by(2, SHORT_S)
            client = await net.client()
            loop, before = asyncio.get_running_loop(), asyncio.get_running_loop().time()
            client.send_unread(b"".join(frame(i, body=bytes(MIB)) for i in range(6)) + frame(6))
            assert await client.receive_ids(7) == list(range(7))
            assert loop.time() - before >= SHORTEST_S
            assert [len(body) for body in net.script.bodies] == [MIB] * 6 + [0]

    run(test)


def test_half_a_frame_that_had_arrived_is_made_whole() -> None:
    async def test() -> None:
        async with served() as net:
            net.script.hook = muted_by(1, SHORT_S)
            client = await net.client()
            second = frame(2, body=b"in two pieces")
            await client.send(frame(1) + second[:9])
            assert await client.receive() == (1, b"")
            await client.send(second[9:] + frame(3))
            assert await client.receive_ids(2) == [2, 3]
            assert net.script.bodies == [b"", b"in two pieces", b""]

    run(test)


def test_one_that_ends_leaves_no_timer() -> None:
    async def test() -> None:
        async with served() as net:
            client = await net.client()
            await client.send(frame(1) + frame(2))
            assert await client.receive_ids(2) == [1, 2]
            only(net).mute(LONG_S)
            timer = only(net)._mute_timer
            assert timer is not None
            only(net).abort()
            await until(lambda: not net.server.connections)
            assert timer.cancelled()

    run(test)


def test_a_listener_that_stops_does_not_wait_for_it() -> None:
    async def test() -> None:
        async with served() as net:
            net.script.hook = muted_by(1, LONG_S)
            client = await net.client()
            await client.send(frame(1) + frame(2) + frame(3))
            assert await client.receive() == (1, b"")
            assert await settled(lambda: net.script.seen) == [1]
            await net.server.stop(LONG_S)
            assert await client.receive_ids(2) == [2, 3]
            assert await client.is_closed()

    run(test)


class Slow(Admission):
    """Holds up every connection for longer than a test takes."""

    def held_up_s(self, listener: str, now_s: float) -> float | None:
        return LONG_S


def test_one_that_is_held_up_at_its_beginning_is_read_no_further_than_it_has_to() -> None:
    async def test() -> None:
        async with served(admission=Slow()) as net:
            client = await net.client()
            size = 256 * 1024
            client.send_unread(b"".join(frame(i, body=bytes(size)) for i in range(1, 200)))
            await until(lambda: net.used)
            assert await settled(lambda: net.used) < 4 * MIB
            assert net.script.seen == []

    run(test)
