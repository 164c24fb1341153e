"""What had happened for certain before a moment."""

from __future__ import annotations

import bisect
from collections.abc import Iterable


class Highest:
    """The highest value that was certain at a time: answered before it."""

    def __init__(self, answered: Iterable[tuple[float, int]]) -> None:
        self._times: list[float] = []
        self._values: list[int] = []
        for at, value in sorted(answered):
            if not self._values or value > self._values[-1]:
                self._times.append(at)
                self._values.append(value)

    def before(self, time: float) -> int:
        place = bisect.bisect_left(self._times, time)
        return self._values[place - 1] if place else -1
