"""The parts in which records are delivered that nobody could process, against a loop over each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.share import isolation


@pytest.mark.parametrize(
    ("limit", "threshold"), [(2, 2), (3, 2), (4, 2), (5, 3), (6, 3), (7, 4), (10, 5), (25, 13)]
)
def test_a_batch_is_divided_from_half_of_the_attempts_on(limit: int, threshold: int) -> None:
    assert isolation.threshold(limit) == threshold


def test_halves_of_halves() -> None:
    """Of 500 records with ten attempts."""
    assert [isolation.part_of(500, count, 10) for count in range(5, 9)] == [250, 125, 62, 31]
    assert isolation.part_of(1, 5, 10) == 1


@pytest.mark.parametrize("limit", range(2, 8))
def test_the_last_attempt_is_alone(limit: int) -> None:
    last = [count for count in range(limit + 1) if isolation.is_last_attempt(count, limit)]
    assert last == ([] if limit == 2 else [limit - 1])


def one_by_one(counts: list[int], size: int, limit: int) -> list[int]:
    """Which of the free records are delivered, decided record by record."""
    chosen: list[int] = []
    part = -1
    for position, count in enumerate(counts):
        last_attempt = limit > 2 and count == limit - 1
        if last_attempt and chosen:
            break
        if count >= max(2, -(-limit // 2)) and part < 0:
            part = max(1, size >> (count - max(2, -(-limit // 2)) + 1))
        chosen.append(position)
        if last_attempt or 0 < part <= len(chosen):
            break
    return chosen


@given(
    counts=st.lists(st.integers(0, 6), min_size=1, max_size=40),
    extra=st.integers(0, 10),
    limit=st.integers(2, 8),
)
def test_runs_are_divided_like_single_records(counts: list[int], extra: int, limit: int) -> None:
    counts = [min(count, limit - 1) for count in counts]
    runs = []
    for position, count in enumerate(counts):
        if runs and runs[-1][2] == count:
            runs[-1] = (runs[-1][0], position + 1, count)
        else:
            runs.append((position, position + 1, count))
    size = len(counts) + extra
    chosen = isolation.apart(runs, size, limit)
    flat = [position for begin, end, _ in chosen for position in range(begin, end)]
    assert flat == one_by_one(counts, size, limit)
    assert all(counts[begin] == count for begin, _, count in chosen)
