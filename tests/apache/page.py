"""The comparison as text: `docs/apache-suite.md`, and the same table on a terminal."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from .comparison import Comparison, Reasons, Row
from .jvm import ROOT
from .results import Tallies, counts

PAGE = ROOT / "docs" / "apache-suite.md"

_INTRODUCTION = """\
# Apache Kafka's own integration tests

Kafka's integration tests take their cluster from annotations. `tests/apache/` gives them a cluster
of Penstock nodes instead of Kafka's own, and runs both on the same machine. `make test-apache`
makes this page from such a run; each line is a class of Kafka {version}.

- A test that runs on several kinds of clusters counts once for each.
- Where fewer pass here than there, the last column says how many and why. The reasons stand test by
  test in `tests/apache/reasons.toml`. A difference without a reason fails the run, and so does a
  reason without a difference.
"""


def kafka_version() -> str:
    jars = (ROOT / "build" / "kafka-test-libs").glob("kafka-clients-integration-tests-*-test.jar")
    return next(jars).name.removesuffix("-test.jar").rpartition("-")[2]


def markdown(comparison: Comparison, reasons: Reasons, totals: str) -> str:
    lines = [_INTRODUCTION.format(version=kafka_version()), totals, ""]
    lines += ["| class | passed here | passed there | differences |", "|---|---:|---:|---|"]
    for row in comparison.rows:
        lines.append(f"| `{row.name}` | {row.here} | {row.there} | {_why(row)} |")
    named = sorted({reason for row in comparison.rows for reason in row.why})
    if named:
        lines += ["", "## The reasons", "", "| reason | tests | |", "|---|---:|---|"]
        count = sum((row.why for row in comparison.rows), Counter[str]())
        lines += [f"| {name} | {count[name]} | {reasons.sentences[name]} |" for name in named]
    return "\n".join(lines) + "\n"


def totals(here: dict[str, Tallies | None], there: dict[str, Tallies | None]) -> str:
    """One sentence over all classes that were run against both."""
    both = [name for name in here if here[name] is not None and there[name] is not None]
    (ours, ran), (theirs, _) = (
        tuple(map(sum, zip(*(counts(side[name] or {}) for name in both), strict=True)))
        if both
        else (0, 0)
        for side in (here, there)
    )
    sentence = f"{len(both)} classes, {ran} tests: {ours} pass here, {theirs} there."
    if left := len(here) - len(both):
        sentence += f" {left} classes were not run against both."
    return sentence


def terminal(comparison: Comparison) -> str:
    width = max((len(row.name) for row in comparison.rows), default=0)
    lines = [f"{'class':{width}}  {'here':>12}  {'there':>12}  differences"]
    lines += [
        f"{row.name:{width}}  {row.here:>12}  {row.there:>12}  {_why(row)}"
        for row in comparison.rows
    ]
    return "\n".join(lines)


def write(text: str, path: Path = PAGE) -> None:
    path.write_text(text, encoding="utf-8")


def _why(row: Row) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in sorted(row.why.items()))
