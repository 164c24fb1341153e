"""Answers with regions of files: all of it arrives in order, whatever the peer does meanwhile."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.base.file_region import FileRegion
from penstock.net import answer_stream
from penstock.net.answer_stream import PIECE_BYTES
from unit.net.served import QUIET_SECONDS, Served, frame, run, served, until

HUGE = 24 * 1024 * 1024
"""More than the sockets of a connection take."""


class Source:
    """A file of random bytes, and how many regions of it somebody has."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.data = random.Random(7).randbytes(size)
        path.write_bytes(self.data)
        self.fd = os.open(path, os.O_RDWR)
        self.out = 0

    def region(self, position: int, size: int) -> FileRegion:
        self.out += 1
        return FileRegion(self.fd, position, size, self._back)

    def _back(self) -> None:
        self.out -= 1


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    made = Source(tmp_path / "segment", HUGE)
    yield made
    os.close(made.fd)
    assert made.out == 0, "a region was kept"


class Parts:
    """An answer of buffers and regions, and what has to arrive of it."""

    def __init__(self, correlation_id: int) -> None:
        self.parts: list[Any] = [bytearray(struct.pack(">ii", 0, correlation_id))]
        self.body = b""

    def buffer(self, data: bytes) -> Parts:
        self.parts.append(data)
        self.body += data
        return self

    def region(self, source: Source, position: int, size: int) -> Parts:
        self.parts.append(source.region(position, size))
        self.body += source.data[position : position + size]
        return self

    def finish(self, net: Served, correlation_id: int) -> bytes:
        """Hands it over; what has to arrive."""
        struct.pack_into(">i", self.parts[0], 0, 4 + len(self.body))
        parts, self.parts = self.parts, []
        net.script.exchanges[correlation_id].finish(parts)
        return self.body


async def asked(net: Served, correlation_id: int = 1) -> Any:
    """A client whose request waits for its answer."""
    net.script.at_once = False
    client = await net.client()
    await client.send(frame(correlation_id))
    await until(lambda: correlation_id in net.script.exchanges)
    return client


def test_a_region_arrives_between_its_buffers(source: Source) -> None:
    async def test() -> None:
        async with served() as net:
            client = await asked(net)
            answer = Parts(1).buffer(b"head").region(source, 5, 200_000).buffer(b"tail")
            body = answer.finish(net, 1)
            assert await client.receive() == (1, body)
            assert net.script.answered_ids == [1]

    run(test)


@pytest.mark.parametrize("seed", range(8))
def test_all_kinds_of_answers_arrive_whole_and_in_order(source: Source, seed: int) -> None:
    dice = random.Random(seed)

    def some(correlation_id: int) -> Parts:
        parts = Parts(correlation_id)
        for _ in range(dice.randrange(1, 12)):
            size = dice.choice([1, 100, 70_000, 1_500_000])
            if dice.random() < 0.5:
                parts.region(source, dice.randrange(HUGE - size), size)
            else:
                parts.buffer(dice.randbytes(size))
        return parts

    async def test() -> None:
        async with served() as net:
            client = await asked(net)
            for correlation_id in range(1, 6):
                body = some(correlation_id).finish(net, correlation_id)
                await client.send(frame(correlation_id + 1))
                if dice.random() < 0.5:
                    client.stop_reading()
                    await asyncio.sleep(0.01)
                    client.go_on_reading()
                assert await client.receive() == (correlation_id, body)
                await until(lambda: correlation_id + 1 in net.script.exchanges)  # noqa: B023

    run(test)


def test_a_slow_reader_takes_a_piece_of_memory_and_nobodys_time(source: Source) -> None:
    async def test() -> None:
        async with served() as net:
            slow = await asked(net)
            slow.stop_reading()
            body = Parts(1).region(source, 0, HUGE).buffer(b"tail").finish(net, 1)
            [connection] = net.server.connections
            transport: Any = connection._transport
            await until(lambda: transport.get_write_buffer_size())
            assert transport.get_write_buffer_size() <= PIECE_BYTES
            await slow.send(frame(2))
            net.script.at_once = True
            other = await net.client()
            await other.send(frame(3))
            assert (await other.receive())[0] == 3
            assert net.script.answered_ids == [3]
            assert net.script.seen == [1, 3]  # what came behind it waits
            slow.go_on_reading()
            assert await slow.receive() == (1, body)
            assert (await slow.receive())[0] == 2
            assert net.script.answered_ids == [3, 1, 2]

    run(test)


def test_a_reader_that_keeps_up_gives_others_their_turn(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_stream, "TURN_BYTES_MAX", 100_000)

    async def test() -> None:
        async with served() as net:
            client, turns = await asked(net), 0
            body = Parts(1).region(source, 0, 1_000_000).finish(net, 1)
            while not net.script.answered_ids:
                turns += 1
                await asyncio.sleep(0)
            assert turns >= 9
            assert await client.receive() == (1, body)

    run(test)


def test_an_answer_waits_for_what_the_transport_has_still_to_send(source: Source) -> None:
    """The first answer is too small to stop the connection, and yet some of it is not sent."""

    async def test() -> None:
        async with served(send_buffer_bytes=16_384) as net:
            client = await asked(net)
            client.stop_reading()
            [connection] = net.server.connections
            transport: Any = connection._transport
            bodies, correlation_id = [], 1
            while not transport.get_write_buffer_size():
                bodies.append(
                    Parts(correlation_id).buffer(bytes(100_000)).finish(net, correlation_id)
                )
                correlation_id += 1
                await client.send(frame(correlation_id))
                await until(lambda: correlation_id in net.script.exchanges)  # noqa: B023
            answer = Parts(correlation_id).region(source, 9, 300_000)
            bodies.append(answer.finish(net, correlation_id))
            client.go_on_reading()
            for expected, body in enumerate(bodies, 1):
                assert await client.receive() == (expected, body)

    run(test)


def test_a_peer_that_goes_away_leaves_nothing_behind(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with served() as net:
            client = await asked(net)
            client.stop_reading()
            Parts(1).region(source, 0, HUGE).finish(net, 1)
            await asyncio.sleep(QUIET_SECONDS)
            assert source.out == 1
            client.close()
            await until(lambda: not net.server.connections)
            net.script.exchanges.clear()
            await until(lambda: not source.out)

    with caplog.at_level(logging.ERROR):
        run(test)
    assert not caplog.records


def test_a_connection_that_is_closing_is_not_sent_to(source: Source) -> None:
    """Its descriptor may be somebody else's by then."""

    async def test() -> None:
        async with served() as net:
            client = await asked(net)
            [connection] = net.server.connections
            connection.abort()
            Parts(1).region(source, 0, 1_000_000).finish(net, 1)
            assert await client.is_closed()
            assert not net.script.answered_ids

    run(test)


def test_a_file_that_is_cut_off_ends_the_connection(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with served() as net:
            client = await asked(net)
            os.truncate(source.path, 1_000)
            Parts(1).region(source, 0, 200_000).finish(net, 1)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await client.receive()
            await until(lambda: not net.server.connections)

    run(test)
    assert "cannot be sent from its file" in caplog.text


def test_where_a_file_system_cannot_send_it_is_read(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*args: Any) -> int:
        raise OSError(errno.EINVAL, "no sendfile here")

    monkeypatch.setattr(os, "sendfile", refuses)

    async def test() -> None:
        async with served() as net:
            client = await asked(net)
            answer = Parts(1).buffer(b"head").region(source, 0, HUGE).buffer(b"tail")
            body = answer.finish(net, 1)
            assert await client.receive() == (1, body)

    run(test)


def test_who_stops_the_server_waits_for_what_is_on_its_way(source: Source) -> None:
    async def test() -> None:
        async with served() as net:
            client = await asked(net)
            client.stop_reading()
            body = Parts(1).region(source, 0, HUGE).finish(net, 1)
            stopping = asyncio.create_task(net.server.stop(10.0))
            await asyncio.sleep(QUIET_SECONDS)
            client.go_on_reading()
            assert await client.receive() == (1, body)
            await stopping
            assert await client.is_closed()

    run(test)
