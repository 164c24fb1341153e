"""How long the work for one request may go on before others have their turn.

A handler that does something for each of many elements looks at the clock now and then and lets
the loop run. Counting would not do: an element may be a glance, or a log that has to be opened.
Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
from time import monotonic_ns

TURN_NS_MAX = 2_000_000
"""As long as it takes to start 64 small Produces, which is what one connection may have begun: so
those lose nothing.
"""


class Turn:
    __slots__ = ("_began_ns",)

    def __init__(self) -> None:
        self._began_ns = monotonic_ns()

    @property
    def is_over(self) -> bool:
        return monotonic_ns() - self._began_ns > TURN_NS_MAX

    async def next(self) -> None:
        """Let others have theirs; then this is a new one."""
        await asyncio.sleep(0)
        self._began_ns = monotonic_ns()
