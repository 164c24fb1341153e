"""Connections that have to authenticate: a deadline, and memory apart from that of the others."""

from __future__ import annotations

import pytest

from penstock.auth.principal import Principal
from penstock.net import server as servers
from penstock.net.connection import Connection
from unit.net.served import Client, Served, frame, run, served, until

LOGIN_BYTES = 100_000
POOL = 50_000
ANN = Principal("User", "ann", "127.0.0.1")
IN = 7
"""The correlation id of a request that is a login."""


def log_in(connection: Connection, correlation_id: int) -> bool:
    if correlation_id == IN:
        connection.authenticated(ANN)
    return False


async def half_sent(net: Served, size: int) -> tuple[Client, bytes]:
    """A client of whose frame twenty bytes have arrived, and the rest of it."""
    before = net.server.login_memory.used_bytes
    client = await net.client()
    data = frame(1, body=bytes(size))
    await client.send(data[:20])
    await until(lambda: net.server.login_memory.used_bytes > before)
    return client, data[20:]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "LOGIN_S_MAX", 0.3)
    monkeypatch.setattr(servers, "IDLE_SWEEP_SECONDS_MAX", 0.05)


@pytest.mark.usefixtures("short")
def test_who_does_not_authenticate_in_time_is_closed() -> None:
    async def test() -> None:
        async with served(login_bytes_max=LOGIN_BYTES) as net:
            net.script.hook = log_in
            user, silent, busy = [await net.client() for _ in range(3)]
            await user.send(frame(IN))
            assert await user.receive_ids(1) == [IN]
            for number in range(100, 103):  # traffic is no login
                await busy.send(frame(number))
            assert await busy.receive_ids(3) == [100, 101, 102]
            assert await silent.is_closed()
            assert await busy.is_closed()
            await user.send(frame(1))
            assert await user.receive_ids(1) == [1]
            assert net.server.refused_total == {"login": 2}

    run(test)


@pytest.mark.usefixtures("short")
def test_where_nobody_has_to_authenticate_there_is_no_deadline() -> None:
    async def test() -> None:
        async with served() as net:
            anybody = await net.client()
            assert not net.server._logging_in
            assert await anybody.silent()
            assert net.server.refused_total == {}

    run(test)


def test_who_is_in_does_not_wait_for_the_memory_of_those_who_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(servers, "LOGIN_BYTES_MAX", LOGIN_BYTES)

    async def test() -> None:
        async with served(login_bytes_max=LOGIN_BYTES, queued_request_bytes_max=POOL) as net:
            net.script.hook = log_in
            user = await net.client()
            await user.send(frame(IN))
            assert await user.receive_ids(1) == [IN]
            for _ in range(2):
                await half_sent(net, LOGIN_BYTES - 100)
            assert net.server.login_memory.full
            assert net.used == 0
            for number in range(3):
                await user.send(frame(number, body=bytes(5 * POOL)))
                assert await user.receive_ids(1) == [number]
            late = await net.client()  # a login that arrives in one piece needs none of it
            await late.send(frame(IN))
            assert await late.receive_ids(1) == [IN]

    run(test)


def test_what_arrives_behind_a_login_counts_with_the_others_from_then_on() -> None:
    async def test() -> None:
        async with served(login_bytes_max=LOGIN_BYTES, queued_request_bytes_max=POOL) as net:
            net.script.hook = log_in
            net.script.at_once = False
            user = await net.client()
            behind = frame(1, body=bytes(10_000))
            await user.send(frame(IN) + behind + frame(2, body=bytes(30_000))[:100])
            await until(lambda: net.script.seen == [IN])
            await until(lambda: net.used == len(behind) - 4 + 30_000 + 12)
            assert net.server.login_memory.used_bytes == 0
            net.script.at_once = True
            net.script.finish(IN)
            await user.send(frame(2, body=bytes(30_000))[100:])
            assert await user.receive_ids(3) == [IN, 1, 2]
            assert net.used == 0

    run(test)


def test_who_waited_for_memory_when_the_login_ended_waits_with_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(servers, "LOGIN_BYTES_MAX", LOGIN_BYTES)

    async def test() -> None:
        async with served(login_bytes_max=LOGIN_BYTES, queued_request_bytes_max=POOL) as net:
            net.script.hook = log_in
            net.script.at_once = False
            await half_sent(net, LOGIN_BYTES - 100)
            await half_sent(net, LOGIN_BYTES - 100)
            user = await net.client()
            data = frame(5, body=bytes(30_000))
            await user.send(frame(1) + data[:100])
            await until(lambda: net.script.seen == [1])
            [connection] = [c for c in net.server.connections if c._memory_full]
            connection.authenticated(ANN)
            assert not connection._memory_full
            assert net.used == len(data)
            net.script.at_once = True
            net.script.finish(1)
            await user.send(data[100:])
            assert await user.receive_ids(2) == [1, 5]

    run(test)
