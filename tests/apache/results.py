"""The outcomes of runs, class by class, below `build/apache`: what a comparison is made of.

A file per target and class, so that a run that was stopped goes on where it was. Kafka's own stay
until its jars change; ours are for one state of the sources, and whoever runs them says when to
begin anew.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from .jvm import BUILD, Outcome

FOLDER = BUILD


@dataclass
class Tally:
    """One method: how often it ran (once for each kind of cluster), and what went wrong."""

    ran: int = 0
    passed: int = 0
    errors: list[str] = field(default_factory=list)


Tallies = dict[str, Tally]


def tallies(outcomes: Iterable[Outcome]) -> Tallies:
    """By class and method. The order of the kinds of clusters is not the same in each JVM."""
    found: Tallies = {}
    for outcome in outcomes:
        tally = found.setdefault(outcome.test, Tally())
        tally.ran += 1
        tally.passed += outcome.passed
        if outcome.error:
            tally.errors.append(outcome.error)
    return found


def with_second_chances(first: Tallies, second: Tallies) -> Tallies:
    """Methods that were run again, alone, count as they went then."""
    return {test: second.get(test, tally) for test, tally in first.items()}


def path_of(target: str, name: str) -> Path:
    return FOLDER / target / f"{name}.json"


def write(target: str, name: str, found: Tallies) -> None:
    path = path_of(target, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = {test: vars(tally) for test, tally in sorted(found.items())}
    path.write_text(json.dumps(rows, indent=1) + "\n")


def read(target: str, name: str) -> Tallies | None:
    """None if the class has not been run."""
    path = path_of(target, name)
    if not path.exists():
        return None
    return {test: Tally(**row) for test, row in json.loads(path.read_text()).items()}


def counts(found: Tallies) -> tuple[int, int]:
    """Passed and run, all kinds of clusters counted."""
    total = Counter[str]()
    for tally in found.values():
        total.update(passed=tally.passed, ran=tally.ran)
    return total["passed"], total["ran"]
