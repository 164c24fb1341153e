"""Brokers that have probably just died: this node notices before the controller has fenced them.

When a connection to another broker breaks, its clients' connections break at the same moment, and
they ask for metadata immediately: a few milliseconds before the controller has fenced the broker
and named new leaders. With the old leader they would retry only at their next refresh, a second
later with librdkafka. So such an answer waits until the controller has decided, or until the broker
turns out to be alive: up to `SUSPICION_S_MAX` if a connection is refused, otherwise while
connections are tried.

A broker that has just been fenced stays on the list of brokers that clients get for `LISTED_S`:
librdkafka drops a broker that has left the list together with partitions that it is about to move
to their new leader, and finds them again only a second later. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio

from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage
from penstock.peers.connection import Address
from penstock.peers.peers import Channel, Knock, knock

SUSPICION_S_MAX = 1.0
LISTED_S = 3.0
KNOCK_PAUSES_S = (0.0, 0.02, 0.05, 0.1)
"""The pauses before each attempt to connect: the kernel may still accept for a process that is
being killed.
"""


class Suspicions:
    def __init__(self, image: MetadataImage, node_id: int) -> None:
        self._image = image
        self._node_id = node_id
        self._open: dict[int, asyncio.Task[None]] = {}
        self._left_s: dict[int, float | None] = {}
        """When brokers were fenced that had been alive; None for those that are."""

    def __bool__(self) -> bool:
        return bool(self._open)

    def connection_lost(self, address: Address, channel: Channel) -> None:
        """A connection that this node had made has broken."""
        for broker in self._image.brokers.values():
            if (
                any((e.host, e.port) == address[:2] for e in broker.endpoints)
                and not broker.fenced
                and broker.id not in (self._node_id, *self._open)
            ):
                self._begin(broker.id, address)

    def _begin(self, broker_id: int, address: Address) -> None:
        task = asyncio.get_running_loop().create_task(self._probe(address))
        self._open[broker_id] = task
        task.add_done_callback(lambda _: self._open.pop(broker_id))

    async def _probe(self, address: Address) -> None:
        for pause_s in KNOCK_PAUSES_S:
            await asyncio.sleep(pause_s)
            if await knock(address) is Knock.REFUSED:
                await asyncio.sleep(SUSPICION_S_MAX)
                return

    def apply(self, delta: MetadataDelta) -> None:
        """The controller has changed brokers."""
        for broker_id in delta.changed_brokers:
            task = self._open.get(broker_id)
            if task is not None:
                task.cancel()
            broker = self._image.brokers.get(broker_id)
            if broker is None:
                self._left_s.pop(broker_id, None)
            elif not broker.fenced:
                self._left_s[broker_id] = None
            elif broker_id in self._left_s and self._left_s[broker_id] is None:
                self._left_s[broker_id] = asyncio.get_running_loop().time()

    def has_just_left(self, broker_id: int) -> bool:
        """Whether the broker was fenced a moment ago."""
        left_s = self._left_s.get(broker_id)
        return left_s is not None and asyncio.get_running_loop().time() < left_s + LISTED_S

    async def settle(self) -> None:
        """Wait until no broker is under suspicion."""
        while self._open:
            await asyncio.wait(list(self._open.values()))

    def stop(self) -> None:
        for task in self._open.values():
            task.cancel()
