"""A real listener on 127.0.0.1 with a scripted handler, and a client that sends what it is told to.

Frames of these tests are `api key, version, correlation id, payload`; an answer is a frame of the
correlation id and what the handler gave.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from penstock.net.admission import Admission
from penstock.net.connection import Connection
from penstock.net.exchange import Exchange
from penstock.net.server import NetLimits, Server
from penstock.net.tls import ListenerTls

PRODUCE, FETCH = 0, 1
WAIT_SECONDS_MAX = 20.0
TEST_SECONDS_MAX = 60.0 + float(os.environ.get("FUZZ_SECONDS", "0"))
QUIET_SECONDS = 0.05  # how long nothing must happen before it counts as not happening
LOOK_SECONDS = 0.005
QUIET_LOOKS = 10

_HEAD = struct.Struct(">hhi")


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Runs a test's coroutine on uvloop, as a node runs."""

    async def timed() -> None:
        async with asyncio.timeout(TEST_SECONDS_MAX):
            await test()

    uvloop.run(timed())


async def until(check: Callable[[], Any], seconds: float = WAIT_SECONDS_MAX) -> None:
    """Waits for `check` to become true."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"still not so after {seconds} s"
        await asyncio.sleep(0.002)


async def settled(value: Callable[[], Any]) -> Any:
    """The value once it has not changed in QUIET_LOOKS turns of the loop that is tested.

    Turns, not time: a machine that is busy elsewhere lets time pass in which nothing can happen.
    """
    seen, looks = value(), 0
    while looks < QUIET_LOOKS:
        await asyncio.sleep(LOOK_SECONDS)
        looks = looks + 1 if value() == seen else 0
        seen = value()
    return seen


def payload(correlation_id: int, *, key: int = FETCH, body: bytes = b"") -> bytes:
    return _HEAD.pack(key, 0, correlation_id) + body


def frame(correlation_id: int, *, key: int = FETCH, body: bytes = b"") -> bytes:
    """One request with its length before it."""
    inside = payload(correlation_id, key=key, body=body)
    return struct.pack(">i", len(inside)) + inside


def answer(correlation_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


class Script:
    """The handler: notes each request and answers it at once, or when the test says so."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.bodies: list[bytes] = []
        self.exchanges: dict[int, Exchange] = {}
        self.answered_ids: list[int] = []
        self.at_once = True
        self.body: Callable[[int], bytes] = lambda correlation_id: b""
        self.hook: Callable[[Connection, int], bool] | None = None  # True: it has dealt with it

    def __call__(self, connection: Connection, view: memoryview, received_ns: int) -> None:
        key, version, correlation_id = _HEAD.unpack_from(view)
        self.seen.append(correlation_id)
        self.bodies.append(bytes(view[_HEAD.size :]))
        if self.hook is not None and self.hook(connection, correlation_id):
            return
        exchange = Exchange(connection, key, version, correlation_id, received_ns)
        self.exchanges[correlation_id] = exchange
        if self.at_once:
            self.finish(correlation_id)

    def finish(self, correlation_id: int) -> None:
        self.exchanges[correlation_id].finish(answer(correlation_id, self.body(correlation_id)))

    def answered(self, exchange: Exchange) -> None:
        assert exchange.received_ns <= exchange.started_ns <= exchange.ready_ns <= exchange.sent_ns
        self.answered_ids.append(exchange.correlation_id)


class Client:
    """One connection, seen from outside."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def send_unread(self, data: bytes) -> None:
        """Queues bytes without waiting for the peer to take them."""
        self.writer.write(data)

    async def receive(self) -> tuple[int, bytes]:
        """The next answer: its correlation id and its body."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            size, correlation_id = struct.unpack(">ii", await self.reader.readexactly(8))
            return correlation_id, await self.reader.readexactly(size - 4)

    async def receive_ids(self, count: int) -> list[int]:
        return [(await self.receive())[0] for _ in range(count)]

    async def is_closed(self) -> bool:
        """Waits for the peer to hang up; False when it sends something instead."""
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                return not await self.reader.read(1)
        except ConnectionError:
            return True

    async def silent(self) -> bool:
        """Whether neither bytes nor an end come for a while."""
        try:
            async with asyncio.timeout(QUIET_SECONDS):
                await self.reader.read(1)
        except TimeoutError:
            return True
        return False

    def stop_reading(self) -> None:
        transport: Any = self.writer.transport
        transport.pause_reading()

    def go_on_reading(self) -> None:
        transport: Any = self.writer.transport
        transport.resume_reading()

    def close(self) -> None:
        self.writer.transport.abort()


class Served:
    """The listener under test."""

    def __init__(self, server: Server, script: Script, address: tuple[str, int]) -> None:
        self.server = server
        self.script = script
        self.address = address
        self.clients: list[Client] = []

    async def client(self, tls: ssl.SSLContext | None = None) -> Client:
        made = Client(*await asyncio.open_connection(*self.address, limit=1 << 26, ssl=tls))
        self.clients.append(made)
        return made

    @property
    def used(self) -> int:
        return self.server.memory.used_bytes


@asynccontextmanager
async def served(
    admission: Admission | None = None,
    tls: ListenerTls | None = None,
    login_bytes_max: int = 0,
    **limits: Any,
) -> AsyncIterator[Served]:
    """A listener with these limits that lives for one test; at its end nothing may be left over."""
    script = Script()
    answered = script.answered
    server = Server("TEST", NetLimits(**limits), script, answered, admission, tls, login_bytes_max)
    net = Served(server, script, server.bind("127.0.0.1", 0))
    await server.start()
    try:
        yield net
    finally:
        for client in net.clients:
            client.close()
        await server.stop(0.0)
        await until(lambda: not server.open_connections)
    assert not server.admission.per_ip, "somebody still counts"
    assert not server.admission.per_listener.total(), "somebody still counts"
    assert net.used == server.login_memory.used_bytes == 0, "request memory leaked"
