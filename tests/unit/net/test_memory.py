"""`queued.max.request.bytes`: what arrives and what waits is counted, bounded, and given back."""

from __future__ import annotations

import pytest

from penstock.base.errors import InvariantBroken
from penstock.net.memory import RequestMemory
from unit.net.served import Client, Served, frame, run, served, settled, until

POOL = 100_000


def test_the_pool_alone() -> None:
    memory = RequestMemory(100)
    woken: list[int] = []
    assert not memory.full
    memory.take(99)
    assert not memory.full
    memory.take(500)
    assert memory.full
    for i in range(3):
        memory.when_free(lambda i=i: woken.append(i))
    memory.give_back(499)
    assert woken == []
    memory.give_back(1)
    assert woken == [0, 1, 2]
    memory.give_back(99)
    assert memory.used_bytes == 0
    with pytest.raises(InvariantBroken):
        memory.give_back(1)


def test_who_is_woken_may_fill_the_pool_again() -> None:
    memory = RequestMemory(10)
    woken: list[int] = []
    memory.take(10)

    def fill() -> None:
        woken.append(1)
        memory.take(10)

    memory.when_free(fill)
    memory.when_free(lambda: woken.append(2))
    memory.give_back(10)
    assert woken == [1]
    memory.give_back(10)
    assert woken == [1, 2]


def test_without_a_limit_it_is_never_full() -> None:
    memory = RequestMemory()
    memory.take(1 << 40)
    assert not memory.full


async def half_sent(net: Served, correlation_id: int, size: int) -> tuple[Client, bytes]:
    """A client of whose frame twenty bytes have arrived, and the rest of it."""
    known = set(net.server.connections)
    client = await net.client()
    data = frame(correlation_id, body=bytes(size))
    await client.send(data[:20])
    await until(lambda: any(c._chunks for c in net.server.connections.keys() - known))
    return client, data[20:]


def test_a_frame_larger_than_the_pool_passes() -> None:
    async def test() -> None:
        async with served(queued_request_bytes_max=POOL) as net:
            client = await net.client()
            for i in range(3):
                await client.send(frame(i, body=bytes(5 * POOL)))
                assert await client.receive() == (i, b"")
            assert net.used == 0

    run(test)


def test_whoever_finds_the_pool_full_waits_and_is_woken() -> None:
    async def test() -> None:
        async with served(queued_request_bytes_max=POOL) as net:
            first, rest = await half_sent(net, 0, POOL)
            others = [await half_sent(net, i, 10_000) for i in range(1, 4)]
            for client, more in others:
                client.send_unread(more)
            assert await settled(lambda: net.script.seen) == []
            await first.send(rest)
            assert await first.receive() == (0, b"")
            for i, (client, _) in enumerate(others, 1):
                assert await client.receive() == (i, b"")
            assert net.used == 0

    run(test)


def test_those_who_wait_do_not_keep_each_other_waiting() -> None:
    """Frames that are large beside the pool: each gets its turn when the one before it is done."""

    async def test() -> None:
        async with served(queued_request_bytes_max=POOL) as net:
            clients = [await half_sent(net, i, POOL) for i in range(5)]
            for client, rest in clients:
                client.send_unread(rest)
            for i, (client, _) in enumerate(clients):
                assert await client.receive() == (i, b"")
            assert net.used == 0

    run(test)


def test_connections_that_end_half_way_give_back_and_wake_others() -> None:
    async def test() -> None:
        async with served(queued_request_bytes_max=POOL) as net:
            dying = [(await half_sent(net, i, POOL))[0] for i in range(4)]
            last, rest = await half_sent(net, 9, 1_000)
            last.send_unread(rest)
            assert await settled(lambda: net.script.seen) == []
            for client in dying:
                client.close()
            assert await last.receive() == (9, b"")
            assert await settled(lambda: net.used) == 0

    run(test)


def test_requests_that_wait_behind_another_are_counted() -> None:
    async def test() -> None:
        async with served(queued_request_bytes_max=POOL) as net:
            net.script.at_once = False
            slow = await net.client()
            await slow.send(frame(0))
            await until(lambda: net.script.seen == [0])
            for i in range(1, 4):
                await slow.send(frame(i, body=bytes(40_000)))
            await until(lambda: net.used >= 3 * 40_000)
            other, rest = await half_sent(net, 100, 1_000)
            other.send_unread(rest)
            assert await settled(lambda: net.script.seen) == [0]
            net.script.at_once = True
            net.script.finish(0)
            assert await slow.receive_ids(4) == [0, 1, 2, 3]
            assert await other.receive() == (100, b"")
            assert net.used == 0

    run(test)
