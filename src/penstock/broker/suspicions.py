"""Brokers that have just gone, as far as this node can tell before the controller has said so.

When a connection to another broker breaks, its clients' connections break at the same moment, and
they ask for metadata at once: a few milliseconds before the controller has fenced the broker and
named new leaders. An answer with the old leader would cost them their next refresh, a second later
with librdkafka. So such an answer waits until the controller has spoken, or until the broker turns
out to be there: where a knock is refused up to `SUSPICION_S_MAX`, otherwise as long as the knock.
Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.client.connection import Address
from penstock.client.peers import Channel, Knock, knock
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage

SUSPICION_S_MAX = 1.0


class Suspicions:
    def __init__(self, image: MetadataImage, listener: Callable[[], str], node_id: int) -> None:
        """`listener` is the name of the one by which nodes reach each other."""
        self._image = image
        self._listener = listener
        self._node_id = node_id
        self._open: dict[int, asyncio.Task[None]] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def connection_lost(self, address: Address, channel: Channel) -> None:
        """A connection that this node had made has broken."""
        for broker in self._image.brokers.values():
            endpoint = broker.endpoint(self._listener())
            if (
                endpoint is not None
                and (endpoint.host, endpoint.port) == address
                and not broker.fenced
                and broker.id not in (self._node_id, *self._open)
            ):
                self._begin(broker.id, address)

    def _begin(self, broker_id: int, address: Address) -> None:
        task = asyncio.get_running_loop().create_task(self._look(address))
        self._open[broker_id] = task
        task.add_done_callback(lambda _: self._open.pop(broker_id))

    async def _look(self, address: Address) -> None:
        if await knock(address) is Knock.REFUSED:
            await asyncio.sleep(SUSPICION_S_MAX)

    def apply(self, delta: MetadataDelta) -> None:
        """The controller has spoken of brokers."""
        for broker_id in delta.changed_brokers:
            task = self._open.get(broker_id)
            if task is not None:
                task.cancel()

    async def settle(self) -> None:
        """Until nothing is in suspense."""
        while self._open:
            await asyncio.wait(list(self._open.values()))

    def stop(self) -> None:
        for task in self._open.values():
            task.cancel()
