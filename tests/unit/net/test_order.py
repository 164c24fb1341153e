"""One request of a connection at a time, Produces excepted, and answers always in order."""

from __future__ import annotations

import socket
import struct

import pytest

from penstock.net.connection import Connection
from penstock.net.large_frames import LARGE_FRAME_BYTES
from unit.net.served import FETCH, PRODUCE, frame, run, served, settled, until


def test_answers_come_in_order_although_finished_out_of_order() -> None:
    async def test() -> None:
        async with served() as net:
            net.script.at_once = False
            client = await net.client()
            await client.send(b"".join(frame(i, key=PRODUCE) for i in range(5)))
            await until(lambda: len(net.script.exchanges) == 5)
            for late in (4, 2, 1, 3):
                net.script.finish(late)
            assert await client.silent()
            net.script.finish(0)
            assert await client.receive_ids(5) == [0, 1, 2, 3, 4]
            assert net.script.answered_ids == [0, 1, 2, 3, 4]

    run(test)


def test_an_answer_is_given_once() -> None:
    async def test() -> None:
        async with served() as net:
            net.script.at_once = False
            client = await net.client()
            await client.send(frame(1))
            await until(lambda: net.script.exchanges)
            net.script.finish(1)
            net.script.finish(1)
            assert await client.receive() == (1, b"")
            assert await client.silent()
            assert net.script.answered_ids == [1]

    run(test)


def test_only_produce_overtakes_waiting_produces() -> None:
    async def test() -> None:
        async with served() as net:
            net.script.at_once = False
            client = await net.client()
            keys = [PRODUCE, PRODUCE, FETCH, PRODUCE, FETCH, PRODUCE, PRODUCE]
            await client.send(b"".join(frame(i, key=key) for i, key in enumerate(keys)))
            # The Fetch waits for both Produces, and what is behind it waits for the Fetch.
            assert await settled(lambda: net.script.seen) == [0, 1]
            net.script.finish(1)
            assert await settled(lambda: net.script.seen) == [0, 1]
            net.script.finish(0)
            assert await settled(lambda: net.script.seen) == [0, 1, 2]
            net.script.finish(2)
            assert await settled(lambda: net.script.seen) == [0, 1, 2, 3]
            net.script.finish(3)
            assert await settled(lambda: net.script.seen) == [0, 1, 2, 3, 4]
            net.script.finish(4)
            assert await settled(lambda: net.script.seen) == list(range(7))
            net.script.finish(5)
            net.script.finish(6)
            assert await client.receive_ids(7) == list(range(7))

    run(test)


def test_a_produce_waits_for_another_request() -> None:
    async def test() -> None:
        async with served() as net:
            net.script.at_once = False
            client, other = await net.client(), await net.client()
            await client.send(frame(1) + frame(2, key=PRODUCE))
            assert await settled(lambda: net.script.seen) == [1]
            # One connection's order is nothing to another.
            await other.send(frame(10, key=PRODUCE))
            assert await settled(lambda: net.script.seen) == [1, 10]
            net.script.finish(10)
            assert await other.receive() == (10, b"")
            net.script.finish(1)
            assert await client.receive() == (1, b"")
            assert await settled(lambda: net.script.seen) == [1, 10, 2]

    run(test)


def test_many_waiting_requests_answered_at_once_need_no_deep_stack() -> None:
    async def test() -> None:
        async with served() as net:
            net.script.at_once = False
            client = await net.client()
            await client.send(frame(0))
            await until(lambda: net.script.seen == [0])
            await client.send(b"".join(frame(i) for i in range(1, 3000)))
            await until(lambda: net.used > 0)
            net.script.at_once = True
            net.script.finish(0)
            assert await client.receive_ids(3000) == list(range(3000))

    run(test)


def test_what_waits_behind_a_refused_request_is_not_started() -> None:
    async def test() -> None:
        async with served() as net:
            net.script.at_once = False

            def refuse_the_second(connection: Connection, correlation_id: int) -> bool:
                if correlation_id == 2:
                    connection.refuse("no such thing")
                return correlation_id == 2

            net.script.hook = refuse_the_second
            client = await net.client()
            await client.send(frame(1) + frame(2) + frame(3, key=PRODUCE) + frame(4))
            assert await settled(lambda: net.script.seen) == [1]
            net.script.finish(1)
            await until(lambda: not net.server.connections)
            assert net.script.seen == [1, 2]
            assert net.server.refused_total == {"protocol": 1}

    run(test)


def test_a_connection_that_is_reset_takes_its_waiting_requests_with_it() -> None:
    async def test() -> None:
        async with served() as net:
            net.script.at_once = False
            client = await net.client()
            await client.send(frame(1) + frame(2) + frame(3))
            await until(lambda: net.used > 0)
            sock = client.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            await until(lambda: not net.server.connections)
            net.script.finish(1)
            assert await settled(lambda: net.script.seen) == [1]
            assert net.used == 0

    run(test)


@pytest.mark.parametrize("size", [0, 3 * LARGE_FRAME_BYTES])
def test_what_a_peer_sent_before_it_hung_up_is_served(size: int) -> None:
    """As in Kafka: a consumer that is closed in a hurry sends LeaveGroup behind a commit of offsets
    and does not wait for either.
    """

    async def test() -> None:
        async with served() as net:
            net.script.at_once = False
            client = await net.client()
            await client.send(b"".join(frame(i, body=bytes(size)) for i in range(3)))
            client.writer.write_eof()
            assert await settled(lambda: net.script.seen) == [0]
            for number in range(3):
                net.script.finish(number)
            assert await client.receive_ids(3) == [0, 1, 2]
            assert await client.is_closed()
            await until(lambda: not net.server.connections)

    run(test)


def test_a_peer_that_reads_no_more_has_its_requests_served_too() -> None:
    async def test() -> None:
        async with served() as net:
            net.script.at_once = False
            client = await net.client()
            await client.send(frame(0) + frame(1))
            client.writer.close()
            assert await settled(lambda: net.script.seen) == [0]
            net.script.finish(0)
            assert net.script.seen == [0, 1]
            net.script.finish(1)
            await until(lambda: not net.server.connections)

    run(test)


def test_a_peer_that_hangs_up_with_nothing_behind_is_forgotten_at_once() -> None:
    async def test() -> None:
        async with served() as net:
            net.script.at_once = False
            client = await net.client()
            await client.send(frame(0))
            await until(lambda: net.script.exchanges)
            given_up: list[int] = []
            net.script.exchanges[0].on_abandoned = lambda: given_up.append(0)
            client.writer.write_eof()
            await until(lambda: given_up)
            assert await client.is_closed()

    run(test)
