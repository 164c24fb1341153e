"""How many bytes of requests may wait in memory at once (`queued.max.request.bytes`).

Only what really waits is counted: frames that are still arriving and frames that stand behind
another request of their connection. A frame may start to arrive whenever the pool is not yet
full, so one frame larger than the pool still gets through, as in Kafka. Connections that find the
pool full stop reading and are woken in the order they came. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from penstock.base.errors import invariant

UNLIMITED = -1


class RequestMemory:
    __slots__ = ("_limit", "_waiting", "used_bytes")

    def __init__(self, limit_bytes: int = UNLIMITED) -> None:
        self._limit = limit_bytes
        self.used_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def full(self) -> bool:
        return self._limit != UNLIMITED and self.used_bytes >= self._limit

    def take(self, n: int) -> None:
        self.used_bytes += n

    def give_back(self, n: int) -> None:
        self.used_bytes -= n
        invariant(self.used_bytes >= 0, "request memory given back twice")
        while self._waiting and not self.full:
            self._waiting.popleft()()

    def when_free(self, wake: Callable[[], None]) -> None:
        """Call `wake` once there is room again."""
        self._waiting.append(wake)

    def forget(self, wake: Callable[[], None]) -> None:
        """Cancel `wait`: `wake` is not called any more."""
        self._waiting.remove(wake)
