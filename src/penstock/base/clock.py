"""Clock and random numbers as interfaces, so that the simulator can supply its own.

The pure rooms read no clock: they are passed a time and, where they need random numbers, a `Rng`.
"""

from __future__ import annotations

import os
import random
import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since 1970, as record timestamps use it."""

    def monotonic(self) -> float:
        """Seconds that never go back, for time-outs and durations."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class Rng(Protocol):
    def uuid(self) -> bytes:
        """A random uuid (version 4) as 16 bytes."""

    def below(self, n: int) -> int:
        """A number from 0 to n - 1."""


class SystemRng:
    def uuid(self) -> bytes:
        raw = bytearray(os.urandom(16))
        raw[6] = (raw[6] & 0x0F) | 0x40
        raw[8] = (raw[8] & 0x3F) | 0x80
        return bytes(raw)

    def below(self, n: int) -> int:
        return random.randrange(n)
