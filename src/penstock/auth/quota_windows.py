"""How much of a quota has been used, and how long to wait until it is kept: Kafka's arithmetic.

`SampledRate` is Kafka's `Rate` over a `SampledStat`: amounts are summed in samples of
`quota.window.size.seconds`; those of the last `quota.window.num` count. The sum is divided by the
time since the oldest of them began, filled up as if there were at least all but one of the samples:
a client that has just come may use in its first second what the whole window allows. `TokenBucket`
is that of KIP-599: it fills at the quota's rate, up to what the whole window allows, and may fall
below zero once.

Times are milliseconds of one clock that does not go back. Amounts are integers, so that sums are
exact; bounds, rates and tokens are doubles, in the order of Kafka's operations, so that times to
wait are the same to the millisecond. (Kafka adds times of requests as percentages, in doubles:
there half a millisecond may be rounded the other way.)

Invariants:
* `tokens` and `is_idle` change nothing. (In Kafka a look at a metric moves the beginning of empty
  samples.)
* A bucket that `is_idle` behaves as a new one from then on, so it can be dropped at any time.

Cost: O(1) for what is recorded, without a timer; a sample that has expired is taken out when the
next amount comes. Limits: `quota.window.num` + 1 samples of 24 bytes in a bucket.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from math import floor, inf
from typing import Final

THROTTLE_MS_MAX: Final = 2**31 - 1
"""What the field of an answer holds. Kafka casts, and may get a number below zero."""

_FIELDS: Final = 3  # of a sample: amount, when it began, when its last amount came
_AMOUNT: Final = 0
_BEGAN: Final = 1
_LAST: Final = 2
_NEWEST: Final = -_FIELDS


class Windows:
    """`quota.window.num` and `quota.window.size.seconds`, which all buckets of a node share."""

    __slots__ = ("burst_s", "expiry_ms", "least_ms", "sample_ms", "samples")

    def __init__(self, samples: int = 11, sample_s: int = 1) -> None:
        self.samples = samples
        self.sample_ms = sample_s * 1000
        self.expiry_ms = samples * self.sample_ms
        """So long after its last amount a sample counts no more."""
        self.least_ms = (samples - 1) * self.sample_ms
        """No rate is over less, but for the part of a sample that is not over."""
        self.burst_s = samples * (self.sample_ms / 1000.0)
        """A token bucket holds what comes in in this time."""


class Bucket(ABC):
    """What all buckets have: the bound that they are held to, and when that was broken last."""

    __slots__ = ("bound", "shown", "throttled_until_ms", "windows")

    def __init__(self, windows: Windows, bound: float) -> None:
        self.windows = windows
        self.bound = bound
        """Amount per second."""
        self.throttled_until_ms = 0
        self.shown = ("", "")
        """The user and the client id (or address) under which metrics count it."""

    @abstractmethod
    def is_idle(self, now_ms: int) -> bool:
        """Whether a new bucket would do as well."""


class SampledRate(Bucket):
    __slots__ = ("_samples", "total")

    def __init__(self, windows: Windows, bound: float) -> None:
        super().__init__(windows, bound)
        self._samples = array("q")  # oldest first
        self.total = 0
        """What counts, as of the last amount."""

    def record(self, amount: int, now_ms: int) -> None:
        """`amount` came; a negative one takes back what was recorded at the same time."""
        samples = self._samples
        if not samples or now_ms - samples[_NEWEST + _BEGAN] >= self.windows.sample_ms:
            self._expire(now_ms)
            samples.extend((0, now_ms, now_ms))
        samples[_NEWEST + _AMOUNT] += amount
        samples[_NEWEST + _LAST] = now_ms
        self.total += amount

    def _expire(self, now_ms: int) -> None:
        samples = self._samples
        last_counted_ms = now_ms - self.windows.expiry_ms
        expired = 0
        while expired < len(samples) and samples[expired + _LAST] <= last_counted_ms:
            self.total -= samples[expired + _AMOUNT]
            expired += _FIELDS
        if expired:
            del samples[:expired]

    def throttle_ms(self, now_ms: int) -> int:
        """How long nothing must come so that the rate falls to the bound; 0 if it is kept."""
        samples, windows, bound = self._samples, self.windows, self.bound
        if samples and samples[_LAST] <= now_ms - windows.expiry_ms:
            self._expire(now_ms)
        window_ms = now_ms - samples[_BEGAN] if samples else 0
        if window_ms < windows.least_ms:
            window_ms = windows.least_ms + window_ms % windows.sample_ms
        if window_ms < 1:
            window_ms = 1
        rate = self.total / (window_ms / 1000.0)
        if rate <= bound:
            return 0
        return rounded_ms((rate - bound) / bound * window_ms)

    def is_idle(self, now_ms: int) -> bool:
        samples = self._samples
        return not samples or samples[_NEWEST + _LAST] <= now_ms - self.windows.expiry_ms


class TokenBucket(Bucket):
    __slots__ = ("_filled_ms", "_tokens")

    def __init__(self, windows: Windows, bound: float) -> None:
        """A new one is full."""
        super().__init__(windows, bound)
        self._tokens = inf  # of which there is room for less
        self._filled_ms = 0

    def tokens(self, now_ms: int) -> float:
        """What is there; below zero, what is missing."""
        elapsed_s = (now_ms - self._filled_ms) / 1000.0
        return min(self.windows.burst_s * self.bound, self._tokens + self.bound * elapsed_s)

    def take(self, amount: float, now_ms: int) -> None:
        """Also more than there is: then nothing is left until that has come in."""
        self._fill(now_ms)
        self._tokens -= amount

    def throttle_ms(self, now_ms: int) -> int:
        """How long it takes until nothing is missing."""
        self._fill(now_ms)
        return rounded_ms(-self._tokens / self.bound * 1000) if self._tokens < 0 else 0

    def _fill(self, now_ms: int) -> None:
        """At the bound of now, also for the time before it was set."""
        self._tokens = self.tokens(now_ms)
        self._filled_ms = now_ms

    def is_idle(self, now_ms: int) -> bool:
        return self.tokens(now_ms) >= self.windows.burst_s * self.bound


def rounded_ms(ms: float) -> int:
    """To the nearest, as Java's `Math.round` does: a half is rounded up."""
    if ms >= THROTTLE_MS_MAX:
        return THROTTLE_MS_MAX
    whole = floor(ms)
    return whole + 1 if ms - whole >= 0.5 else whole
