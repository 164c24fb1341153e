"""Within which offsets a topic and its archive are compared."""

from __future__ import annotations

from penstock.spark.lake.sides import _shared
from penstock.spark.lake.table import Span, State

PLACE = ("t", 0)


def shared(held: Span, first: int, end: int) -> Span:
    ranges, _ = _shared(State(spans={"t": {"0": held}}), {PLACE: first}, {PLACE: end})
    return ranges[PLACE]


def test_rows_before_the_first_of_an_archive_are_missing_from_it() -> None:
    assert shared(Span(5, 10), 0, 12) == Span(0, 10)


def test_what_was_trimmed_since_is_not_compared() -> None:
    assert shared(Span(0, 10), 5, 12) == Span(5, 10)
    assert shared(Span(0, 10), 11, 12) == Span(10, 10)


def test_a_topic_that_ends_before_its_archive() -> None:
    assert shared(Span(0, 10), 0, 4) == Span(0, 4)
