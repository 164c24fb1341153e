"""Rates and token buckets, against naive models in exact fractions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.auth.quota_windows import (
    THROTTLE_MS_MAX,
    SampledRate,
    TokenBucket,
    Windows,
    rounded_ms,
)

START_MS = 1_000_000
ROOM = Fraction(1, 1_000_000)  # for doubles, around a half of a millisecond
STATE_BYTES_MAX = 600

steps_ms = st.one_of(
    st.sampled_from([0, 0, 1, 999, 1000, 1001, 5000, 10_999, 11_000, 11_001, 60_000]),
    st.integers(0, 3000),
)
windows = st.builds(Windows, st.integers(1, 12), st.integers(1, 3))
amounts = st.integers(0, 100_000)
bounds = st.integers(1, 20_000)


@dataclass
class Model:
    """Every sample there ever was: [when it began, when its last amount came, sum]."""

    windows: Windows
    samples: list[list[int]] = field(default_factory=list)

    def record(self, amount: int, now_ms: int) -> None:
        if not self.samples or now_ms - self.samples[-1][0] >= self.windows.sample_ms:
            self.samples.append([now_ms, now_ms, 0])
        self.samples[-1][1] = now_ms
        self.samples[-1][2] += amount

    def wait_ms(self, bound: int, now_ms: int) -> Fraction:
        counted = [s for s in self.samples if now_ms - s[1] < self.windows.expiry_ms]
        elapsed_ms = now_ms - min((s[0] for s in counted), default=now_ms)
        whole = elapsed_ms // self.windows.sample_ms
        missing = max(self.windows.samples - 1 - whole, 0)
        window_ms = max(elapsed_ms + missing * self.windows.sample_ms, 1)
        rate = Fraction(sum(s[2] for s in counted) * 1000, window_ms)
        return max((rate - bound) / bound * window_ms, Fraction(0))


def assert_rounded(ms: int, exact: Fraction) -> None:
    assert abs(ms - exact) <= Fraction(1, 2) + ROOM * (1 + exact)


def times(steps: list[int]) -> Iterator[int]:
    now_ms = START_MS
    for step in steps:
        now_ms += step
        yield now_ms


@given(windows, bounds, st.lists(st.tuples(steps_ms, amounts), max_size=60))
def test_a_rate_is_that_of_all_samples_that_count(
    windows: Windows, bound: int, recorded: list[tuple[int, int]]
) -> None:
    rate, model = SampledRate(windows, bound), Model(windows)
    for now_ms, (_, amount) in zip(times([r[0] for r in recorded]), recorded, strict=True):
        rate.record(amount, now_ms)
        model.record(amount, now_ms)
        assert_rounded(rate.throttle_ms(now_ms), model.wait_ms(bound, now_ms))
        assert len(rate._samples) <= 3 * (windows.samples + 1)
    late_ms = now_ms + 500 if recorded else START_MS
    assert_rounded(rate.throttle_ms(late_ms), model.wait_ms(bound, late_ms))


@given(windows, bounds, st.lists(st.tuples(steps_ms, amounts), min_size=1, max_size=40))
def test_who_waits_so_long_keeps_the_quota(
    windows: Windows, bound: int, recorded: list[tuple[int, int]]
) -> None:
    rate = SampledRate(windows, bound)
    for now_ms, (_, amount) in zip(times([r[0] for r in recorded]), recorded, strict=True):
        rate.record(amount, now_ms)
    wait_ms = rate.throttle_ms(now_ms)
    # The time that has been filled up is no time: a sample more may be needed.
    assert rate.throttle_ms(now_ms + wait_ms + 2 * windows.expiry_ms) == 0


@given(windows, bounds, amounts, st.lists(st.tuples(steps_ms, amounts), max_size=40))
def test_what_is_taken_back_leaves_no_trace(
    windows: Windows, bound: int, taken_back: int, recorded: list[tuple[int, int]]
) -> None:
    rate, plain = SampledRate(windows, bound), SampledRate(windows, bound)
    for now_ms, (_, amount) in zip(times([r[0] for r in recorded]), recorded, strict=True):
        rate.record(amount, now_ms)
        plain.record(amount, now_ms)
        rate.record(taken_back, now_ms)
        rate.record(-taken_back, now_ms)
        assert rate.throttle_ms(now_ms) == plain.throttle_ms(now_ms)


@given(windows, bounds, st.lists(st.tuples(steps_ms, amounts), max_size=60))
def test_an_idle_rate_is_as_good_as_a_new_one(
    windows: Windows, bound: int, recorded: list[tuple[int, int]]
) -> None:
    kept, dropped = SampledRate(windows, bound), SampledRate(windows, bound)
    for now_ms, (_, amount) in zip(times([r[0] for r in recorded]), recorded, strict=True):
        if dropped.is_idle(now_ms):
            dropped = SampledRate(windows, bound)
        for rate in (kept, dropped):
            rate.record(amount, now_ms)
        assert kept.throttle_ms(now_ms) == dropped.throttle_ms(now_ms)


def test_a_client_that_has_just_come_may_use_the_whole_window_at_once() -> None:
    rate = SampledRate(Windows(), 1000)
    rate.record(10_000, START_MS)
    assert rate.throttle_ms(START_MS) == 0
    rate.record(1, START_MS)
    assert rate.throttle_ms(START_MS) == 1
    rate.record(9_999, START_MS)
    assert rate.throttle_ms(START_MS) == 10_000


class TokenModel:
    def __init__(self, windows: Windows) -> None:
        self.burst_s = Fraction(windows.expiry_ms, 1000)
        self.tokens = Fraction(10**9)  # full, whatever its first bound is
        self.now_ms = START_MS

    def fill(self, bound: int, now_ms: int) -> None:
        came_in = Fraction(now_ms - self.now_ms, 1000) * bound
        self.tokens = min(self.burst_s * bound, self.tokens + came_in)
        self.now_ms = now_ms


mutations = st.lists(st.tuples(steps_ms, st.integers(0, 500), st.integers(1, 50)), max_size=60)


@given(windows, mutations)
def test_a_token_bucket_fills_at_its_rate_and_bounds_may_change(
    windows: Windows, taken: list[tuple[int, int, int]]
) -> None:
    bucket, model = TokenBucket(windows, 7), TokenModel(windows)
    for now_ms, (_, amount, bound) in zip(times([t[0] for t in taken]), taken, strict=True):
        bucket.bound = bound
        model.fill(bound, now_ms)
        bucket.take(amount, now_ms)
        model.tokens -= amount
        assert bucket.tokens(now_ms) == pytest.approx(float(model.tokens), abs=1e-6)
        exact_ms = max(-model.tokens / bound * 1000, Fraction(0))
        assert_rounded(bucket.throttle_ms(now_ms), exact_ms)


@given(windows, mutations)
def test_a_full_token_bucket_is_as_good_as_a_new_one(
    windows: Windows, taken: list[tuple[int, int, int]]
) -> None:
    kept, dropped = TokenBucket(windows, 7), TokenBucket(windows, 7)
    for now_ms, (_, amount, _) in zip(times([t[0] for t in taken]), taken, strict=True):
        if dropped.is_idle(now_ms):
            dropped = TokenBucket(windows, 7)
        for bucket in (kept, dropped):
            bucket.take(amount, now_ms)
        assert kept.throttle_ms(now_ms) == dropped.throttle_ms(now_ms)


def test_a_debt_is_not_forgotten_while_nothing_happens() -> None:
    bucket = TokenBucket(Windows(), 1.0)
    bucket.take(1011, START_MS)
    assert bucket.throttle_ms(START_MS) == 1_000_000
    assert not bucket.is_idle(START_MS + 1_000_000)
    assert bucket.is_idle(START_MS + 1_011_000)


@given(st.floats(0, 1e9, allow_nan=False))
def test_times_are_rounded_as_java_rounds_them(ms: float) -> None:
    assert rounded_ms(ms) == floor(Fraction(ms) + Fraction(1, 2))


def test_a_time_fits_its_field() -> None:
    assert rounded_ms(0.49999999999999994) == 0
    assert rounded_ms(1e300) == THROTTLE_MS_MAX
    rate = SampledRate(Windows(), 1.0)
    rate.record(10**12, START_MS)
    assert rate.throttle_ms(START_MS) == THROTTLE_MS_MAX


def test_a_bucket_is_small() -> None:
    rate = SampledRate(Windows(), 1000.0)
    for sample in range(100):
        rate.record(1 << 40, START_MS + 1000 * sample)
    own = (rate, rate._samples, rate.total)
    assert sum(sys.getsizeof(part) for part in own) <= STATE_BYTES_MAX
