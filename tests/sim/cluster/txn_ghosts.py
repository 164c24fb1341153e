"""Requests that arrive once more, late, over another connection: as if a network had kept a copy.

What a client has sent in a transaction, and what a coordinator has told a partition, comes again
when the transaction is over and the next has begun. It must change nothing. Left out is what even
Kafka cannot tell from the new: in transactions of version 1, where the epoch stays, the end and the
offsets of one transaction are those of the next.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.coordinating.transaction_markers import TransactionMarkers
from penstock.peers.connection import Address
from penstock.peers.errors import PeerError
from penstock.wire.schema import Message

from .wire import Wire, pause

CHANCE = 0.15
LATE_S_MAX = 3.0
VERSION_2 = 2


class Sent(NamedTuple):
    address: Address
    request: Message
    version: int


class Ghosts:
    def __init__(self, rng: random.Random, wire: Wire, spawn: Callable[[Any], None]) -> None:
        self.rng = rng
        self.wire = wire
        self.on = True
        self._spawn = spawn

    def haunt(self, sent: list[Sent]) -> None:
        """A transaction is over; some of what was sent in it may come again."""
        if self.on and sent and self.rng.random() < CHANCE:
            self._spawn(self._later(self.rng.sample(sent, min(3, len(sent)))))

    async def _later(self, sent: list[Sent]) -> None:
        for address, request, version in sent:
            await pause(self.rng.expovariate(1.0) * LATE_S_MAX / 6)
            try:
                await self.wire.call(address, request, version, 1.0)
            except PeerError:
                continue

    def haunt_markers(self) -> None:
        """Let coordinators repeat some of their markers."""
        original = TransactionMarkers._call

        async def call(markers: Any, node: int, request: Any) -> Any:
            if self.on and self.rng.random() < CHANCE and _distinct(request):
                late = asyncio.get_running_loop().create_task(again(markers, node, request))
                self._late[late] = None
                late.add_done_callback(self._late.pop)
            return await original(markers, node, request)

        async def again(markers: Any, node: int, request: Any) -> None:
            await pause(self.rng.expovariate(1.0) * LATE_S_MAX / 3)
            if markers._stopped:
                return
            try:
                await original(markers, node, request)
            except PeerError:
                return

        self._late: dict[asyncio.Task[None], None] = {}
        TransactionMarkers._call = call  # type: ignore[assignment, method-assign]


def _distinct(request: Any) -> bool:
    """Whether every transaction that a request ends has an epoch of its own."""
    return all(marker.transaction_version >= VERSION_2 for marker in request.markers)
