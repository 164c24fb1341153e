"""Who may connect, for how long, and how much one that does not read may pile up."""

from __future__ import annotations

import asyncio

import pytest

from penstock.net.admission import Admission, ConnectionLimits
from penstock.net.connection import WAITING_REQUESTS_MAX, WRITE_BUFFER_HIGH_BYTES
from unit.net.idle_clock import IDLE_MS, Clock, swept
from unit.net.served import PRODUCE, frame, run, served, settled, until

MIB = 1 << 20


def test_a_client_that_never_reads_is_no_longer_served() -> None:
    async def test() -> None:
        async with served(send_buffer_bytes=64 * 1024) as net:
            net.script.body = lambda _: bytes(MIB)
            client = await net.client()
            client.stop_reading()
            client.send_unread(b"".join(frame(i) for i in range(1000)))
            served_to = await settled(lambda: len(net.script.seen))
            # What the kernel's buffers take, the high mark, and the one answer that crosses it.
            assert 1 <= served_to <= 12
            [connection] = net.server.connections
            assert connection._transport is not None
            held = connection._transport.get_write_buffer_size()
            assert held <= WRITE_BUFFER_HIGH_BYTES + MIB + 8
            client.go_on_reading()
            assert await client.receive_ids(20) == list(range(20))

    run(test)


def test_a_produce_too_waits_until_the_client_reads() -> None:
    async def test() -> None:
        async with served(send_buffer_bytes=64 * 1024) as net:
            net.script.body = lambda _: bytes(8 * MIB)
            client = await net.client()
            client.stop_reading()
            client.send_unread(b"".join(frame(i, key=PRODUCE) for i in range(100)))
            assert await settled(lambda: len(net.script.seen)) <= 2
            other = await net.client()
            net.script.body = lambda _: b""
            await other.send(frame(1000))
            assert await other.receive() == (1000, b"")

    run(test)


def test_too_many_waiting_requests_pause_reading() -> None:
    async def test() -> None:
        async with served() as net:
            net.script.at_once = False
            client = await net.client()
            await client.send(frame(0))
            await until(lambda: net.script.seen == [0])
            [connection] = net.server.connections
            body, count = bytes(100_000), 300
            client.send_unread(b"".join(frame(i, body=body) for i in range(1, count)))
            waiting = await settled(lambda: len(connection._waiting))
            assert WAITING_REQUESTS_MAX <= waiting <= WAITING_REQUESTS_MAX + 8
            assert connection._read_paused
            net.script.at_once = True
            net.script.finish(0)
            assert await client.receive_ids(count) == list(range(count))
            assert not connection._read_paused

    run(test)


def test_max_connections() -> None:
    async def test() -> None:
        async with served(admission=Admission(ConnectionLimits(connections_max=3))) as net:
            kept = [await net.client() for _ in range(3)]
            await until(lambda: len(net.server.connections) == 3)
            for number in range(1, 4):
                extra = await net.client()
                assert await extra.is_closed()
                assert net.server.refused_total == {"max.connections": number}
            kept[0].close()
            await until(lambda: len(net.server.connections) == 2)
            late = await net.client()
            for i, client in enumerate([*kept[1:], late]):
                await client.send(frame(i))
                assert await client.receive() == (i, b"")
            assert net.server.accepted_total == 4

    run(test)


def test_max_connections_per_ip() -> None:
    async def test() -> None:
        async with served(admission=Admission(ConnectionLimits(per_ip_max=2))) as net:
            near = [await net.client() for _ in range(2)]
            await until(lambda: len(net.server.connections) == 2)
            assert await (await net.client()).is_closed()
            assert net.server.refused_total == {"max.connections.per.ip": 1}
            reader, writer = await asyncio.open_connection(
                *net.address, local_addr=("127.0.0.2", 0)
            )
            writer.write(frame(1))
            assert len(await reader.readexactly(8)) == 8
            writer.close()
            near[0].close()
            await until(lambda: len(net.server.connections) == 1)
            again = await net.client()
            await again.send(frame(2))
            assert await again.receive() == (2, b"")
            assert net.server.admission.per_ip["127.0.0.1"] == 2

    run(test)


def test_thousands_of_connects_and_disconnects_leave_nothing() -> None:
    async def test() -> None:
        async with served(listen_backlog=1000) as net:
            for _ in range(10):
                clients = await asyncio.gather(*(net.client() for _ in range(100)))
                for i, client in enumerate(clients):
                    if i % 3 == 0:
                        client.send_unread(frame(i)[: 1 + i % 14])
                for client in clients:
                    client.close()
            await until(lambda: net.server.accepted_total == 1000 and not net.server.connections)
            assert not net.server.admission.per_ip
            assert net.used == 0

    run(test)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_an_idle_connection_is_closed(clock: Clock) -> None:
    async def test() -> None:
        async with served(idle_ms_max=IDLE_MS) as net:
            quiet, half, busy = [await net.client() for _ in range(3)]
            await half.send(frame(1, body=b"never whole")[:10])
            await until(lambda: net.used)
            clock.pass_ms(IDLE_MS * 2 // 3)
            await swept(net)
            assert len(net.server.connections) == 3
            await busy.send(frame(2))
            assert await busy.receive() == (2, b"")
            clock.pass_ms(IDLE_MS * 2 // 3)
            assert await quiet.is_closed()
            assert await half.is_closed()
            await busy.send(frame(3))
            assert await busy.receive() == (3, b"")
            assert net.server.refused_total == {"idle": 2}
            assert net.used == 0

    run(test)


def test_a_client_that_does_not_read_is_idle_one_that_waits_for_us_is_not(clock: Clock) -> None:
    async def test() -> None:
        async with served(idle_ms_max=IDLE_MS, send_buffer_bytes=64 * 1024) as net:
            net.script.at_once = False
            waits, deaf = await net.client(), await net.client()
            await waits.send(frame(1))
            deaf.stop_reading()
            await deaf.send(frame(2))
            await until(lambda: len(net.script.exchanges) == 2)
            net.script.body = lambda _: bytes(16 * MIB)
            net.script.finish(2)
            clock.pass_ms(2 * IDLE_MS)
            await until(lambda: net.server.refused_total["idle"] == 1)
            await until(lambda: len(net.server.connections) == 1)  # a turn after its count
            net.script.body = lambda _: b""
            net.script.finish(1)
            assert await waits.receive() == (1, b"")

    run(test)


def test_idle_time_begins_with_the_answer(clock: Clock) -> None:
    """A long poll that has just been answered is not idle: the client gets its time to go on."""

    async def test() -> None:
        async with served(idle_ms_max=IDLE_MS) as net:
            net.script.at_once = False
            client = await net.client()
            await client.send(frame(1))
            await until(lambda: net.script.exchanges)
            clock.pass_ms(3 * IDLE_MS)
            await swept(net)
            net.script.finish(1)
            assert await client.receive() == (1, b"")
            clock.pass_ms(IDLE_MS * 2 // 3)
            await swept(net)
            assert len(net.server.connections) == 1
            clock.pass_ms(IDLE_MS * 2 // 3)
            assert await client.is_closed()

    run(test)


def test_refusals_are_logged_sparingly(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with served(idle_ms_max=60_000) as net:
            for _ in range(30):
                await (await net.client()).send(b"\xff" * 8)
            await until(lambda: net.server.refused_total["protocol"] == 30)
        lines = [r for r in caplog.records if "closed" in r.message]
        assert 1 <= len(lines) <= 10
        assert "127.0.0.1" in lines[0].message
        assert "socket.request.max.bytes" in lines[0].message

    run(test)


def test_large_requests_that_wait_pause_reading_by_their_bytes() -> None:
    """Sixty-four waiting requests of 100 MB each would not be a limit."""

    async def test() -> None:
        async with served() as net:
            net.script.at_once = False
            client = await net.client()
            await client.send(frame(0))
            await until(lambda: net.script.seen == [0])
            client.send_unread(b"".join(frame(i, body=bytes(2 * MIB)) for i in range(1, 50)))
            assert await settled(lambda: net.used) <= 32 * MIB
            net.script.at_once = True
            net.script.finish(0)
            assert await client.receive_ids(50) == list(range(50))

    run(test)


def test_produces_that_wait_for_their_acknowledgement_are_not_taken_in_without_end() -> None:
    async def test() -> None:
        async with served() as net:
            net.script.at_once = False
            client = await net.client()
            count = 20_000
            client.send_unread(b"".join(frame(i, key=PRODUCE) for i in range(count)))
            taken_in = await settled(lambda: len(net.script.seen))
            assert taken_in < count // 2
            net.script.at_once = True
            for i in range(taken_in):
                net.script.finish(i)
            assert await client.receive_ids(count) == list(range(count))

    run(test)
