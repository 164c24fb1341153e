"""Simulated time and the network between replicas.

Events run in the order of their time, then of their making. A message between two replicas may be
late, lost, doubled or overtaken; links are cut one way or both. Everything comes from one seed.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

from penstock.wire.schema import Message


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 1_000_000
        self.trace: list[str] = []
        self.cut: set[tuple[int, int]] = set()
        """(from, to) that carry nothing."""
        self.encodes = seed % 4 == 0
        """Messages go through their bytes, which costs time."""
        self.drop = 0.0
        self.double = 0.0
        self.delay_ms = (1, 5)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._made = 0

    def log(self, text: str) -> None:
        self.trace.append(f"{self.now_ms - 1_000_000:>6} {text}")

    def message(self, source: int, target: int, message: Message) -> None:
        """A message goes on its way; for those who show it."""

    def wire(self, message: Message, version: int) -> Message:
        """What the other side reads."""
        if not self.encodes:
            return message
        return type(message).decode(message.encode(version), version)

    def at(self, time_ms: int, action: Callable[[], None]) -> None:
        self._made += 1
        heapq.heappush(self._queue, (max(time_ms, self.now_ms), self._made, action))

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.at(self.now_ms + delay_ms, action)

    def run_until(self, time_ms: int) -> None:
        queue = self._queue
        while queue and queue[0][0] <= time_ms:
            self.now_ms, _, action = heapq.heappop(queue)
            action()
        self.now_ms = time_ms

    def carry(self, source: int, target: int, deliver: Callable[[], None]) -> bool:
        """Bring a message over; whether it goes on its way at all."""
        rng = self.random
        if (source, target) in self.cut or rng.random() < self.drop:
            return False
        copies = 2 if rng.random() < self.double else 1
        for _ in range(copies):
            self.after(rng.randint(*self.delay_ms), deliver)
        return True


class SeededRng:
    """The core's chance."""

    def __init__(self, rng: random.Random) -> None:
        self._random = rng

    def uuid(self) -> bytes:
        return self._random.randbytes(16)

    def below(self, n: int) -> int:
        return self._random.randrange(n)
