"""State batches put together, against a table of single records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinator.share_state.batches import combined, is_sound
from penstock.share.types import Cause, StateBatch

LAST = 24


@st.composite
def batch(draw: st.DrawFn) -> StateBatch:
    first = draw(st.integers(0, LAST))
    last = draw(st.integers(first, LAST))
    return StateBatch(first, last, draw(st.sampled_from([0, 2, 4])), draw(st.integers(1, 3)))


def by_record(batches: list[StateBatch]) -> dict[int, tuple[int, int]]:
    """What is said of each record: the higher count, then the higher state."""
    found: dict[int, tuple[int, int]] = {}
    for one in batches:
        for offset in range(one.first_offset, one.last_offset + 1):
            found[offset] = max(found.get(offset, (0, 0)), (one.delivery_count, one.state))
    return found


@given(st.lists(st.tuples(st.lists(batch(), max_size=4), st.integers(-1, LAST))))
def test_every_record_has_the_highest_of_what_was_said(
    writes: list[tuple[list[StateBatch], int]],
) -> None:
    batches: list[StateBatch] = []
    wanted: dict[int, tuple[int, int]] = {}
    for newer, start in writes:
        before = list(batches)
        result = combined(batches, newer, start)
        assert batches == before  # a state is not changed in place
        batches = result
        wanted = by_record(
            [StateBatch(o, o, state, count) for o, (count, state) in wanted.items()] + newer
        )
        wanted = {o: said for o, said in wanted.items() if o >= start}
        assert is_sound(batches)
        assert by_record(batches) == wanted


@given(st.lists(batch()), st.lists(batch()))
def test_the_order_and_repetition_do_not_matter(
    one: list[StateBatch], two: list[StateBatch]
) -> None:
    both = combined((), one + two, -1)
    assert combined(combined((), two, -1), one, -1) == both
    assert combined(both, one, -1) == both


def test_neighbours_that_say_the_same_are_one() -> None:
    batches = combined((), [StateBatch(0, 4, 2, 1), StateBatch(10, 14, 2, 1)], -1)
    assert combined(batches, [StateBatch(5, 9, 2, 1)], -1) == [StateBatch(0, 14, 2, 1)]
    assert combined(batches, [StateBatch(5, 9, 2, 2)], -1) == [
        StateBatch(0, 4, 2, 1),
        StateBatch(5, 9, 2, 2),
        StateBatch(10, 14, 2, 1),
    ]


@given(st.lists(batch()), st.lists(batch(), max_size=3))
def test_what_replaces_stands_over_all_that_is_older(
    older: list[StateBatch], newer: list[StateBatch]
) -> None:
    batches = combined((), older, -1)
    result = combined(batches, [one._replace(replaces=True) for one in newer], -1)
    wanted = by_record(batches)
    for one in newer:
        wanted |= by_record([one])
    assert is_sound(result)
    assert by_record(result) == wanted
    assert not any(one.replaces for one in result)


def test_neighbours_of_other_causes_stay_apart() -> None:
    one, two = StateBatch(0, 4, 3, 1, Cause.REJECTED), StateBatch(5, 9, 3, 1, Cause.LIMIT)
    assert combined((), [one, two], -1) == [one, two]
