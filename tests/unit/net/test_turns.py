"""No peer holds the others up by sending many small requests at once."""

from __future__ import annotations

import time

from penstock.net.connection import WAITING_REQUESTS_MAX, Connection
from penstock.net.turn import TURN_NS_MAX
from unit.net.served import frame, run, served, settled, until

MANY = 4_000
BUSY_S = 0.001


def test_no_more_requests_are_kept_than_may_wait() -> None:
    async def test() -> None:
        async with served() as net:
            script = net.script
            script.at_once = False
            client = await net.client()
            client.send_unread(b"".join(frame(i) for i in range(MANY)))
            await until(lambda: script.seen)
            [connection] = net.server.connections
            assert await settled(lambda: len(connection._waiting)) == WAITING_REQUESTS_MAX
            script.at_once = True
            script.finish(0)
            assert await client.receive_ids(MANY) == list(range(MANY))
            assert net.used == 0

    run(test)


def test_others_are_served_while_a_peer_has_many_requests() -> None:
    """Each of them takes a millisecond; of the other peer's there is one at a time."""

    def busy(connection: Connection, correlation_id: int) -> bool:
        ready = time.monotonic() + (BUSY_S if correlation_id < MANY else 0)
        while time.monotonic() < ready:
            pass
        return False

    async def test() -> None:
        async with served() as net:
            script = net.script
            script.hook = busy
            greedy, modest = await net.client(), await net.client()
            greedy.send_unread(b"".join(frame(i) for i in range(300)))
            await until(lambda: script.seen)
            between = []
            while len(script.seen) < 300:
                before = len(script.seen)
                await modest.send(frame(MANY))
                await modest.receive()
                between.append(len(script.seen) - before)
            # Of the greedy one's requests: what fits into a few turns of its own.
            assert len(between) > 10
            assert sorted(between)[len(between) // 2] <= 6 * TURN_NS_MAX / 1e9 / BUSY_S
            assert await greedy.receive_ids(300) == list(range(300))

    run(test)


def test_what_was_not_looked_at_yet_goes_with_its_connection() -> None:
    async def test() -> None:
        async with served() as net:
            net.script.at_once = False
            client = await net.client()
            client.send_unread(b"".join(frame(i) for i in range(MANY)))
            await until(lambda: net.script.seen)
            assert net.used > 0
            [connection] = net.server.connections
            connection.abort()
            await until(lambda: not net.server.connections)
            assert net.used == 0

    run(test)
