"""What takes its turn: of many costly cases a run takes some; after some days all had theirs.

Tests marked `rotated` have theirs every `DAYS` days in `make test` (`--rotation today`), and always
in `make test-all` and where somebody names tests. A test takes its turn alone, or with all of its
file (`rotated("file")`) where those share something costly. Which turn it is follows from the place
of its name among all that rotate, so that each day has as many as the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, TypeVar

import pytest

WORKER_INPUT = "rotation_day"
DAYS = 3

T = TypeVar("T")


def of_the_day(cases: Sequence[T], count: int, day: int | None = None) -> list[T]:
    """The `count` cases whose turn it is, in their order: all have had it after
    `len(cases) / count` days.
    """
    first = count * (date.today().toordinal() if day is None else day)
    turns = {(first + i) % len(cases) for i in range(min(count, len(cases)))}
    return [case for i, case in enumerate(cases) if i in turns]


def of_another_day(units: Mapping[str, str], day: int) -> set[str]:
    """The tests whose turn it is not; `units` has what each test takes its turn with."""
    places = {unit: place for place, unit in enumerate(sorted(set(units.values())))}
    return {test for test, unit in units.items() if places[unit] % DAYS != day % DAYS}


class Rotation:
    """Tells the workers of pytest-xdist which day it is: all must come to the same tests."""

    def __init__(self) -> None:
        self._day = date.today().toordinal()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[WORKER_INPUT] = self._day


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes out of `items` those that have their turn on another day."""
    if config.getoption("--rotation") != "today":
        return
    given = getattr(config, "workerinput", {})
    day = given.get(WORKER_INPUT) or date.today().toordinal()
    left_out = of_another_day(_units(items), day)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


def _units(items: Sequence[pytest.Item]) -> dict[str, str]:
    units = {}
    for item in items:
        mark = item.get_closest_marker("rotated")
        if mark is not None:
            by_file = mark.args == ("file",)
            units[item.nodeid] = item.nodeid.partition("::")[0] if by_file else item.nodeid
    return units
