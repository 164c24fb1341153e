"""Producer ids for this node's idempotent producers, taken from the controller in blocks.

Invariant: an id is given out once in the cluster's life; a block that was taken and not
used up is lost with the node, never given again. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class ProducerIdManager:
    def __init__(self, next_block: Callable[[], Awaitable[range]]) -> None:
        """`next_block` asks the controller for a block and waits until it is committed."""
        self._next_block = next_block
        self._ids = iter(range(0))
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        async with self._lock:
            producer_id = next(self._ids, None)
            if producer_id is None:
                self._ids = iter(await self._next_block())
                producer_id = next(self._ids)
            return producer_id
