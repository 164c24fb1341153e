"""Hostile peers: they are closed, everyone else is served, nothing is left over."""

from __future__ import annotations

import asyncio
from random import Random

from unit.hot_codecs.mutations import mutated, rounds
from unit.net.served import frame, run, served, until

SEED = 4711
PEERS = 20


def test_fuzz_connections_with_garbage_beside_a_good_one() -> None:
    async def test() -> None:
        rng = Random(SEED)
        async with served(request_bytes_max=5_000, queued_request_bytes_max=20_000) as net:
            good = await net.client()
            for number in rounds():
                peers = await asyncio.gather(*(net.client() for _ in range(PEERS)))
                for peer in peers:
                    whole = b"".join(
                        frame(i, key=rng.randrange(3), body=rng.randbytes(rng.randrange(300)))
                        for i in range(rng.randrange(1, 6))
                    )
                    data = rng.choice((whole, mutated(whole, rng), rng.randbytes(50)))
                    cut = rng.randrange(len(data) + 1)
                    peer.send_unread(data[:cut])
                    await asyncio.sleep(0)
                    peer.send_unread(data[cut:])
                await good.send(frame(number, body=b"good"))
                assert await good.receive() == (number, b"")
                for peer in peers:
                    if rng.random() < 0.5:
                        await asyncio.sleep(0)
                    peer.close()
                del net.clients[1:]
                await until(lambda: len(net.server.connections) == 1)
                assert net.used == 0

    run(test)
