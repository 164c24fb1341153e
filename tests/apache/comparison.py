"""What of Kafka's tests passes there and not here, and the reason that `reasons.toml` gives for it.

A difference is a method that passes less often here than there. It needs a reason; a reason needs a
difference, so that the table shrinks when something is mended.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .results import Tallies, counts

REASONS = Path(__file__).with_name("reasons.toml")
NOT_RUN = "not run"


@dataclass(frozen=True)
class Reasons:
    sentences: Mapping[str, str]
    """What each short name of a reason means."""
    tests: Mapping[str, str]
    """The short name, by class for all methods of it, or by class and method."""

    def of(self, test: str) -> str | None:
        return self.tests.get(test) or self.tests.get(test.rpartition(".")[0])

    def about(self, classes: list[str]) -> Reasons:
        """Those that concern some classes."""
        chosen = {
            key: reason
            for key, reason in self.tests.items()
            if key in classes or key.rpartition(".")[0] in classes
        }
        return Reasons(self.sentences, chosen)


def load(path: Path = REASONS) -> Reasons:
    table = tomllib.loads(path.read_text())
    reasons = Reasons(table["reasons"], table["tests"])
    if unknown := set(reasons.tests.values()) - set(reasons.sentences):
        raise ValueError(f"{path}: no reason is named {', '.join(sorted(unknown))}")
    return reasons


@dataclass
class Row:
    """One class."""

    name: str
    here: str
    there: str
    why: Counter[str] = field(default_factory=Counter)
    """How many tests differ, by short name of the reason."""


@dataclass
class Comparison:
    rows: list[Row]
    problems: list[str]
    """What makes a run fail: differences without a reason, reasons without a difference."""


def compare(
    classes: list[str],
    here: Mapping[str, Tallies | None],
    there: Mapping[str, Tallies | None],
    reasons: Reasons,
) -> Comparison:
    rows, problems, used = [], [], set()
    for name in classes:
        ours, theirs = here[name], there[name]
        row = Row(name, _shown(ours), _shown(theirs))
        rows.append(row)
        if ours is None or theirs is None:
            problems.append(f"{name}: not run against both")
            used.update(reasons.about([name]).tests)
            continue
        for test, missing in _differences(ours, theirs).items():
            reason = reasons.of(test)
            if reason is None:
                said = ours[test].errors[0] if test in ours and ours[test].errors else "did not run"
                problems.append(f"{test}: {missing} failed here and passed there: {said}")
                continue
            row.why[reason] += missing
            used.add(test if test in reasons.tests else name)
    idle = sorted(set(reasons.tests) - used)
    problems += [f"{key}: has a reason in {REASONS.name}, but no difference" for key in idle]
    return Comparison(rows, problems)


def _differences(ours: Tallies, theirs: Tallies) -> dict[str, int]:
    """How many runs of a method passed there and not here."""
    found = {}
    for test, their in theirs.items():
        passed_here = ours[test].passed if test in ours else 0
        if their.passed > passed_here:
            found[test] = their.passed - passed_here
    return found


def _shown(found: Tallies | None) -> str:
    if found is None:
        return NOT_RUN
    passed, ran = counts(found)
    return f"{passed} of {ran}"
