"""Large frames are received where they stay; whoever owns the connection gets them as they came."""

from __future__ import annotations

import gc
import struct
from random import Random

import pytest

from penstock.net.connection import LARGE_FRAMES_PER_TURN
from penstock.net.large_frames import (
    BEGINNING_BYTES_MAX,
    GROWTH,
    LARGE_FRAME_BYTES,
    LargeFrames,
)
from unit.net.served import frame, run, served, settled, until

FRAME_BYTES_MAX = 8 * 1024 * 1024


def with_length(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Owner:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.frames: list[bytes] = []
        self.rest: bytes | None = None
        self.touched = 0

    def touch(self) -> None:
        self.touched += 1

    def large_frame_begun(self, size: int) -> None:
        self.begun.append(size)

    def large_frame_arrived(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))

    def large_frames_ended(self, rest: bytes) -> None:
        self.rest = rest

    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def eof_received(self) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...


class Stream:
    """What a transport does: it asks for a buffer and puts into it what has come."""

    def __init__(self, first: bytes) -> None:
        self.owner = Owner()
        self.largest = 0
        beginning = first[:LARGE_FRAME_BYTES]
        self.frames = LargeFrames(self.owner, beginning, len(first), FRAME_BYTES_MAX)
        self.receive(first[LARGE_FRAME_BYTES:])

    def receive(self, data: bytes, step: int = FRAME_BYTES_MAX) -> bytes:
        """What is left of `data` when the owner was told to go on by itself."""
        while data and self.owner.rest is None:
            buffer = self.frames.get_buffer(-1)
            assert buffer, "a transport takes an empty buffer for an end"
            self.largest = max(self.largest, len(buffer))
            n = min(len(buffer), len(data), step)
            buffer[:n] = data[:n]
            self.frames.buffer_updated(n)
            data = data[n:]
        return data


@pytest.mark.parametrize("seed", range(40))
def test_frames_of_any_size_in_reads_of_any_size(seed: int) -> None:
    rng = Random(seed)

    alike = rng.choice(((LARGE_FRAME_BYTES, 100_000), (264_000, 400_000), (2**21, 3_000_000)))

    def some_size() -> int:
        return rng.choice(alike) + rng.randrange(20)

    bodies = [rng.randbytes(some_size()) for _ in range(rng.randrange(2, 9))]
    small = with_length(b"small")
    stream = Stream(with_length(bodies[0]))
    data = b"".join(map(with_length, bodies[1:])) + small + b"what follows"
    left = b""
    while data and stream.owner.rest is None:
        step = rng.choice((1, 3, 5, 4_000, 70_000, 300_000, 2_000_000))
        left = stream.receive(data[:step], step)
        data = data[step:]
    assert stream.owner.frames == bodies
    assert stream.owner.rest is not None
    assert stream.owner.rest + left + data == small + b"what follows"


@pytest.mark.parametrize("size", [-1, 0, LARGE_FRAME_BYTES - 1, FRAME_BYTES_MAX + 1, 2**31 - 1])
def test_what_is_no_large_frame_goes_back_to_the_connection(size: int) -> None:
    stream = Stream(with_length(bytes(LARGE_FRAME_BYTES + 1)))
    stream.receive(struct.pack(">i", size)[:3])
    assert stream.owner.rest is None
    stream.receive(struct.pack(">i", size)[3:])
    assert stream.owner.rest == struct.pack(">i", size)
    assert stream.owner.begun == []


def test_frames_that_are_much_alike_are_not_moved() -> None:
    """The second frame lies where the transport has put it: in one buffer, with one read."""
    body = bytes(range(256)) * 1_024
    stream = Stream(with_length(body))
    for _ in range(3):
        before = stream.owner.touched
        assert stream.receive(with_length(body)) == b""
        assert stream.owner.touched == before + 1
    assert stream.owner.frames == [body] * 4
    assert stream.owner.begun == []


def test_a_frame_that_is_much_smaller_goes_back_with_what_follows() -> None:
    """It would keep a buffer that it does not fill."""
    stream = Stream(with_length(bytes(8 * LARGE_FRAME_BYTES)))
    smaller = with_length(bytes(4 * LARGE_FRAME_BYTES))
    stream.receive(smaller)
    assert len(stream.owner.frames) == 2
    smallest = with_length(bytes(2 * LARGE_FRAME_BYTES - 4))
    assert stream.receive(smallest + b"more") == b""
    assert stream.owner.rest == smallest + b"more"
    assert len(stream.owner.frames) == 2


def test_connections_keep_no_buffers_between_frames() -> None:
    """A loop asks for a buffer before it knows that there is nothing to read."""
    body = bytes(4 * LARGE_FRAME_BYTES)
    streams = [Stream(with_length(body)) for _ in range(3)]
    offered = {id(stream.frames.get_buffer(-1).obj) for stream in streams}
    assert len(offered) == 1
    for stream in streams:
        stream.receive(with_length(body)[:1000])
    held = {id(stream.frames.get_buffer(-1).obj) for stream in streams}
    assert len(held) == 3
    for stream in streams:
        stream.receive(with_length(body)[1000:])
        assert stream.owner.frames == [body, body]


def test_idle_connections_cost_no_memory_after_large_requests() -> None:
    """As a real loop has it, which reads again behind each frame."""

    async def test() -> None:
        size = 16 * LARGE_FRAME_BYTES
        async with served() as net:
            clients = [await net.client() for _ in range(8)]
            for number in (1, 2, 3):
                for client in clients:
                    await client.send(frame(number, body=bytes(size)))
                    assert await client.receive_ids(1) == [number]
            gc.collect()
            kept = [o for o in gc.get_objects() if isinstance(o, LargeFrames)]
            assert len(kept) >= len(clients)
            assert sum(len(frames._buffer) for frames in kept) == 0

    run(test)


def test_memory_is_taken_for_what_has_arrived() -> None:
    stream = Stream(with_length(bytes(FRAME_BYTES_MAX)))
    stream.largest = 0
    stream.receive(with_length(bytes(FRAME_BYTES_MAX)), 1_000)
    assert stream.owner.begun == [4 + FRAME_BYTES_MAX]
    assert len(stream.owner.frames) == 2

    stream = Stream(with_length(bytes(FRAME_BYTES_MAX)))
    stream.largest = 0
    stream.receive(with_length(bytes(FRAME_BYTES_MAX))[:100])
    stream.frames.get_buffer(-1)
    assert stream.largest == BEGINNING_BYTES_MAX

    stream = Stream(with_length(bytes(LARGE_FRAME_BYTES)))
    stream.largest = 0
    stream.receive(with_length(bytes(FRAME_BYTES_MAX))[:100_000])
    stream.frames.get_buffer(-1)
    assert LARGE_FRAME_BYTES < stream.largest <= (GROWTH + 1) * LARGE_FRAME_BYTES


def test_large_requests_wait_for_memory_too() -> None:
    """While others fill the pool, a connection that sends large frames is not read from."""

    async def test() -> None:
        size = 4 * LARGE_FRAME_BYTES
        async with served(queued_request_bytes_max=size) as net:
            client, other = await net.client(), await net.client()
            await client.send(frame(1, body=bytes(size)))
            assert await client.receive_ids(1) == [1]
            await other.send(frame(2, body=bytes(size))[:-1])
            await until(lambda: net.used > size)
            await client.send(frame(3, body=bytes(size))[:-1])
            [sender] = [c for c in net.server.connections if not c._taken]
            await until(lambda: sender._memory_full and sender._read_paused)
            await other.send(b"\0")
            assert await other.receive_ids(1) == [2]
            await client.send(b"\0")
            assert await client.receive_ids(1) == [3]
            assert net.used == 0

    run(test)


def test_who_goes_while_it_waits_for_memory_is_forgotten() -> None:
    async def test() -> None:
        size = 4 * LARGE_FRAME_BYTES
        async with served(queued_request_bytes_max=size) as net:
            gone, other = await net.client(), await net.client()
            await other.send(frame(1, body=bytes(size))[:-1])
            await until(lambda: net.used >= size)
            await gone.send(frame(2, body=bytes(size))[:-1])
            await until(lambda: any(c._memory_full for c in net.server.connections))
            [waits] = [c for c in net.server.connections if c._memory_full]
            waits.abort()  # as idle ones are
            await until(lambda: len(net.server.connections) == 1)
            assert not net.server.memory._waiting
            await other.send(b"\0")
            assert await other.receive_ids(1) == [1]

    run(test)


def test_others_have_their_turn_after_some_frames() -> None:
    async def test() -> None:
        large = frame(1, body=bytes(LARGE_FRAME_BYTES))
        async with served() as net:
            greedy, modest = await net.client(), await net.client()
            for client in (greedy, modest):
                await client.send(large)
                assert await client.receive_ids(1) == [1]
            # All of it is in the sockets before the loop looks at them.
            greedy.send_unread(large * 20)
            modest.send_unread(frame(2, body=bytes(LARGE_FRAME_BYTES)))
            assert await modest.receive_ids(1) == [2]
            assert net.script.seen.index(2) <= 2 + 2 * LARGE_FRAMES_PER_TURN
            assert await greedy.receive_ids(20) == [1] * 20

    run(test)


def test_nothing_starts_once_the_server_closes() -> None:
    async def test() -> None:
        async with served() as net:
            client = await net.client()
            await client.send(frame(1, body=bytes(4 * LARGE_FRAME_BYTES)))
            assert await client.receive_ids(1) == [1]
            [connection] = net.server.connections
            connection.close_when_answered()
            client.send_unread(frame(2, body=bytes(4 * LARGE_FRAME_BYTES)))
            await until(lambda: not net.server.connections)
            assert await settled(lambda: net.script.seen) == [1]
            assert net.used == 0

    run(test)


def test_a_length_beyond_the_limit_is_refused_behind_large_frames_too() -> None:
    async def test() -> None:
        async with served(request_bytes_max=8 * LARGE_FRAME_BYTES) as net:
            client = await net.client()
            large = frame(1, body=bytes(4 * LARGE_FRAME_BYTES))
            await client.send(large + large + struct.pack(">i", 8 * LARGE_FRAME_BYTES + 1))
            await until(lambda: not net.server.connections)
            assert net.server.refused_total == {"protocol": 1}
            assert net.script.seen == [1, 1]
            assert net.used == 0

    run(test)
