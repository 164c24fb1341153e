"""Each machine's own wall clock, wrong in its own way, and chance that follows from the seed."""

from __future__ import annotations

import random

from .loop import SimLoop

EPOCH_MS = 1_800_000_000_000


class SimClock:
    """A wall clock that is `skew_ms` off and may jump; the monotonic clock is the loop's."""

    def __init__(self, loop: SimLoop, skew_ms: int = 0) -> None:
        self._loop = loop
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return EPOCH_MS + self.skew_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()


class SimRng:
    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def uuid(self) -> bytes:
        raw = bytearray(self._random.randbytes(16))
        raw[6] = (raw[6] & 0x0F) | 0x40
        raw[8] = (raw[8] & 0x3F) | 0x80
        return bytes(raw)

    def below(self, n: int) -> int:
        return self._random.randrange(n)
