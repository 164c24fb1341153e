"""How far a redrive has come: offsets, and the bits above them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.queue.positions import FORM, METADATA_BYTES_MAX, Done, TooScattered

LEFT, FINISHED, OTHER = range(3)


def gone_through(kinds: list[int], begin: int = 0) -> Done:
    done = Done(begin)
    for offset, kind in enumerate(kinds, begin):
        {LEFT: done.leave, FINISHED: done.finish, OTHER: lambda o: done.nothing_before(o + 1)}[
            kind
        ](offset)
    return done


@given(st.lists(st.sampled_from((LEFT, FINISHED, OTHER)), max_size=200), st.integers(0, 10**12))
def test_what_is_finished_is_remembered_and_what_is_left_is_not(
    kinds: list[int], begin: int
) -> None:
    done = gone_through(kinds, begin)
    again = Done(done.offset, done.metadata)
    for offset, kind in enumerate(kinds, begin):
        if kind != OTHER:
            assert (offset in again) == (kind == FINISHED)
    assert done.offset == next(
        (o for o, kind in enumerate(kinds, begin) if kind == LEFT), begin + len(kinds)
    )


def test_a_second_pass_goes_on_from_the_first() -> None:
    first = gone_through([FINISHED, LEFT, FINISHED, LEFT, FINISHED])
    second = Done(first.offset, first.metadata)
    for offset in range(first.offset, 5):
        second.finish(offset)
    assert (second.offset, second.metadata) == (5, "")


def test_retention_may_have_passed_what_was_remembered() -> None:
    done = gone_through([LEFT, FINISHED, LEFT, FINISHED])
    later = Done(done.offset, done.metadata)
    later.nothing_before(3)
    later = Done(later.offset, later.metadata)
    assert (later.offset, 3 in later) == (3, True)
    later.finish(3)
    assert (later.offset, later.metadata) == (4, "")


def test_a_copy_is_apart() -> None:
    done = gone_through([LEFT, FINISHED])
    done.copy().finish(0)
    assert 0 not in done


def test_a_simple_pattern_takes_little_and_chaos_is_refused() -> None:
    assert len(gone_through([LEFT, FINISHED] * 50_000).metadata) < METADATA_BYTES_MAX
    dice = random.Random(1)
    done = gone_through([LEFT] + [dice.choice((LEFT, FINISHED)) for _ in range(100_000)])
    with pytest.raises(TooScattered):
        _ = done.metadata


@pytest.mark.parametrize("metadata", ["", "somebody else's", f"{FORM}?", f"{FORM}AAAA", "2:AAAA"])
def test_what_somebody_else_wrote_is_not_believed(metadata: str) -> None:
    done = Done(7, metadata)
    assert (done.offset, done.metadata, 8 in done) == (7, "", False)
