"""What takes its turn: of many costly cases a run takes some; after some days all had theirs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TypeVar

T = TypeVar("T")


def of_the_day(cases: Sequence[T], count: int, day: int | None = None) -> list[T]:
    """The `count` cases whose turn it is, in their order: all have had it after
    `len(cases) / count` days.
    """
    first = count * (date.today().toordinal() if day is None else day)
    turns = {(first + i) % len(cases) for i in range(min(count, len(cases)))}
    return [case for i, case in enumerate(cases) if i in turns]
