"""Producer ids for this node's producers, taken from the controller in blocks.

`take` never waits, and may find the stock empty; `next` waits for the controller. When a block is
nearly used up the next one is fetched in advance, so that the stock is empty only while the
controller cannot be reached.

Invariant: an id is given out once in the cluster's life; a block that was taken and not
used up is lost with the node, never given again. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from penstock.base.errors import PenstockError

log = logging.getLogger("penstock.coordinating")

FETCH_AT = 100
"""How many ids are left when the next block is fetched."""


class ProducerIdManager:
    def __init__(self, next_block: Callable[[], Awaitable[range]]) -> None:
        """`next_block` asks the controller for a block and waits until it is committed."""
        self._next_block = next_block
        self._ids = range(0)
        self._spare = range(0)
        self._fetching: asyncio.Task[None] | None = None

    def take(self) -> int | None:
        """An id from the stock; None if there is none, and then one is being fetched."""
        if not self._ids:
            self._ids, self._spare = self._spare, range(0)
        if len(self._ids) <= FETCH_AT and not self._spare:
            self._fetch()
        if not self._ids:
            return None
        producer_id, self._ids = self._ids[0], self._ids[1:]
        return producer_id

    async def next(self) -> int:
        """An id; waits for the controller if necessary, and raises its error."""
        while (producer_id := self.take()) is None:
            await asyncio.shield(self._fetch())
        return producer_id

    async def prepare(self, timeout_s: float) -> None:
        """Fetch ids if the stock is empty; wait for them at most `timeout_s`."""
        if self._ids or self._spare:
            return
        try:
            await asyncio.wait_for(asyncio.shield(self._fetch()), timeout_s)
        except (PenstockError, TimeoutError):
            log.debug("no producer ids are available at the moment")

    def _fetch(self) -> asyncio.Task[None]:
        """The fetch of the next block that is under way."""
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(self._take_block())
            self._fetching.add_done_callback(self._fetched)
        return self._fetching

    async def _take_block(self) -> None:
        self._spare = await self._next_block()

    def _fetched(self, task: asyncio.Task[None]) -> None:
        self._fetching = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.warning("the controller gives no producer ids: %s", error)

    async def stop(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)
