"""A byte stream becomes frames, however it is cut; what is no frame is refused and counted."""

from __future__ import annotations

import asyncio
import resource
import struct
from random import Random

import pytest

from penstock.net.large_frames import LARGE_FRAME_BYTES
from unit.net.served import Served, answer, frame, run, served, settled, until

LIMIT = 1000


def test_a_frame_cut_at_every_position() -> None:
    async def test() -> None:
        async with served() as net:
            client = await net.client()
            bodies: list[bytes] = []
            one, two = frame(1, body=b"abcdefg"), frame(2, body=b"hij")
            data = one + two
            for cut in range(1, len(data)):
                await client.send(data[:cut])
                await taken_in(net, cut, len(one), len(bodies))
                bodies += [b"abcdefg", b"hij"]
                await client.send(data[cut:])
                assert await client.receive_ids(2) == [1, 2]
            assert net.script.bodies == bodies

    async def taken_in(net: Served, cut: int, first: int, before: int) -> None:
        [connection] = net.server.connections
        arrived = before + (cut >= first)
        partial = cut - first if cut >= first else cut
        await until(
            lambda: (len(net.script.seen), sum(map(len, connection._chunks))) == (arrived, partial)
        )

    run(test)


def test_a_frame_in_single_bytes() -> None:
    async def test() -> None:
        async with served() as net:
            client = await net.client()
            data = frame(7, body=b"slowly")
            for i in range(len(data)):
                await client.send(data[i : i + 1])
                await asyncio.sleep(0)
            assert await client.receive() == (7, b"")
            assert net.script.bodies == [b"slowly"]

    run(test)


def test_several_frames_in_one_segment() -> None:
    async def test() -> None:
        async with served() as net:
            client = await net.client()
            await client.send(b"".join(frame(i, body=bytes(i)) for i in range(50)) + frame(50)[:3])
            assert await client.receive_ids(50) == list(range(50))
            await client.send(frame(50)[3:] + frame(51))
            assert await client.receive_ids(2) == [50, 51]
            assert [len(b) for b in net.script.bodies] == [*range(50), 0, 0]

    run(test)


def test_a_frame_of_many_segments() -> None:
    async def test() -> None:
        async with served() as net:
            client = await net.client()
            body = bytes(range(256)) * 40_000
            await client.send(frame(1, body=body) + frame(2))
            assert await client.receive_ids(2) == [1, 2]
            assert net.script.bodies == [body, b""]

    run(test)


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 7, LIMIT + 1, 2**31 - 1])
def test_impossible_lengths_are_refused_and_counted(size: int) -> None:
    async def test() -> None:
        async with served(request_bytes_max=LIMIT) as net:
            other, client = await net.client(), await net.client()
            await client.send(frame(1) + struct.pack(">i", size) + frame(2))
            # It is closed at once; whether the answer before still gets out is left open.
            await until(lambda: len(net.server.connections) == 1)
            assert net.server.refused_total == {"protocol": 1}
            assert net.script.seen == [1]
            await other.send(frame(3))
            assert await other.receive() == (3, b"")

    run(test)


def test_lengths_at_the_bounds_are_served() -> None:
    async def test() -> None:
        async with served(request_bytes_max=LIMIT) as net:
            client = await net.client()
            await client.send(frame(1) + frame(2, body=bytes(LIMIT - 8)))
            assert await client.receive_ids(2) == [1, 2]
            assert not net.server.refused_total

    run(test)


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 11, 15])
def test_half_a_frame_and_then_the_end(cut: int) -> None:
    async def test() -> None:
        async with served() as net:
            client = await net.client()
            await client.send(frame(1, body=b"abcd")[:cut])
            await until(lambda: net.used > 0)
            client.close()
            await until(lambda: not net.server.connections)
            assert net.script.seen == []
            assert net.used == 0

    run(test)


def test_an_answer_in_pieces_is_written_as_one_frame() -> None:
    async def test() -> None:
        async with served() as net:
            net.script.at_once = False
            client = await net.client()
            await client.send(frame(1) + frame(2))
            await until(lambda: 1 in net.script.exchanges)
            whole = answer(1, b"abcdef")
            net.script.exchanges[1].finish(
                [whole[:5], memoryview(whole)[5:9], bytearray(whole[9:])]
            )
            assert await client.receive() == (1, b"abcdef")
            await until(lambda: 2 in net.script.exchanges)
            net.script.exchanges[2].finish(None)
            assert await client.silent()
            assert await settled(lambda: net.script.answered_ids) == [1, 2]

    run(test)


def test_frames_of_all_sizes_in_segments_of_all_sizes() -> None:
    """Large frames are taken in another way than small ones; the seams must not show."""

    async def test() -> None:
        rng = Random(11)
        async with served() as net:
            client = await net.client()
            for _ in range(15):
                sizes = [
                    rng.choice((0, 1, 500, LARGE_FRAME_BYTES, 3 * LARGE_FRAME_BYTES))
                    + rng.randrange(-20, 20)
                    for _ in range(8)
                ]
                bodies = [rng.randbytes(max(size, 0)) for size in sizes]
                data = b"".join(frame(i, body=body) for i, body in enumerate(bodies))
                net.script.bodies.clear()
                at = 0
                while at < len(data):
                    step = rng.choice((1, 3, 4, 7, 1_000, 60_000, 100_000, 300_000))
                    await client.send(data[at : at + step])
                    at += step
                    for _ in range(rng.randrange(3)):
                        await asyncio.sleep(0)
                assert await client.receive_ids(8) == list(range(8))
                assert net.script.bodies == bodies
            assert net.used == 0

    run(test)


def test_a_large_frame_that_does_not_end() -> None:
    async def test() -> None:
        async with served() as net:
            client = await net.client()
            await client.send(frame(1, body=bytes(1 << 20))[:300_000])
            await until(lambda: net.used > 1 << 20)
            client.close()
            await until(lambda: not net.server.connections)
            assert net.used == 0

    run(test)


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def test_an_announced_frame_takes_no_memory_before_it_arrives() -> None:
    """Else a few bytes on each of many connections would claim the machine's memory."""

    async def test() -> None:
        size, peers = 8 << 20, 25
        async with served(request_bytes_max=2 * size) as net:
            before = resident_bytes()
            for i in range(peers):
                client = await net.client()
                await client.send(frame(i, body=bytes(size))[:100])
            await until(lambda: net.used > peers * size)
            assert resident_bytes() - before < peers * size // 4

    run(test)
