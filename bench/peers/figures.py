"""What a run has found: every single value, and the arithmetic of medians, ranges and ratios.

A `Results` is what peers.json holds. Ratios are Penstock's value divided by the peer's, taken
within each round and then summed up, since a round's turns follow each other on a machine whose
speed drifts.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

OURS = "Penstock"
SIGNIFICANT_DIGITS = 3


def number(value: float) -> str:
    """Three significant digits, thousands set off, no exponent."""
    if not value:
        return "0"
    decimals = SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, decimals):,.{max(0, decimals)}f}"


class Spread(NamedTuple):
    """A median and its range."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        found = list(values)
        return cls(statistics.median(found), min(found), max(found))

    def text(self) -> str:
        if self.low == self.high:
            return number(self.median)
        return f"{number(self.median)} ({number(self.low)} to {number(self.high)})"


class State(NamedTuple):
    """Why there is no figure; or None and the rounds in which something was wrong."""

    nothing: str | None
    blemish: str = ""
    kept: bool = True
    """Whether the rate was reached that was asked for."""


@dataclass
class Results:
    """`values` has for each workload and peer one entry per round: `figures`, or `failed` with
    what happened, or `cannot` with the reason.
    """

    machine: str
    seconds: float
    peers: dict[str, dict[str, Any]] = field(default_factory=dict)
    values: dict[str, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)

    def add(self, workload: str, peer: str, round_number: int, **entry: Any) -> None:
        of_workload = self.values.setdefault(workload, {})
        of_workload.setdefault(peer, []).append({"round": round_number, **entry})

    def write(self, path: Path) -> None:
        """Whole or not at all, so that an interrupted run keeps what it has."""
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(self), indent=1) + "\n")
        new.replace(path)

    @classmethod
    def read(cls, path: Path) -> Results:
        """What `write` has written."""
        return cls(**json.loads(path.read_text()))

    def rounds(self) -> int:
        """The number of the last round; 0 before the first."""
        numbers = (
            entry["round"]
            for peers in self.values.values()
            for entries in peers.values()
            for entry in entries
        )
        return max(numbers, default=0)

    def by_round(self, workload: str, peer: str, key: str) -> dict[int, float]:
        """The values of one figure."""
        entries = self.values.get(workload, {}).get(peer, [])
        return {
            entry["round"]: entry["figures"][key]
            for entry in entries
            if key in entry.get("figures", ())
        }

    def spread(self, workload: str, peer: str, key: str) -> Spread | None:
        """None unless there are values that mean something."""
        values = self.by_round(workload, peer, key)
        if not values or self.state(workload, peer).nothing is not None:
            return None
        return Spread.of(values.values())

    def state(self, workload: str, peer: str) -> State:
        entries = self.values.get(workload, {}).get(peer, [])
        if not entries:
            return State("missing" if self.missing(peer) else "not measured")
        if reasons := [entry["cannot"] for entry in entries if "cannot" in entry]:
            return State(reasons[0])
        figures = [entry["figures"] for entry in entries if "figures" in entry]
        if not figures:
            return State("failed")
        slow = [f["reached_per_s"] for f in figures if f.get("kept", 1.0) == 0]
        if len(slow) * 2 > len(figures):
            reached = number(statistics.median(slow))
            return State(f"not kept: {reached} messages/s", kept=False)
        blemishes = []
        if failed := len(entries) - len(figures):
            blemishes.append(f"failed in {failed} of {len(entries)} rounds")
        if slow:
            blemishes.append(f"rate not kept in {len(slow)} of {len(entries)} rounds")
        return State(None, ", ".join(blemishes))

    def missing(self, peer: str) -> str | None:
        reason = self.peers.get(peer, {}).get("missing")
        return str(reason) if reason else None

    def ratio(self, workload: str, peer: str, key: str) -> Spread | None:
        """Penstock's figure divided by the peer's, of the rounds that have both and in which
        both kept the rate, if there was one to keep.
        """
        if self.spread(workload, OURS, key) is None or self.spread(workload, peer, key) is None:
            return None
        ours, theirs = (
            {
                number: value
                for number, value in self.by_round(workload, name, key).items()
                if self.by_round(workload, name, "kept").get(number, 1.0)
            }
            for name in (OURS, peer)
        )
        return ratio(ours, theirs)

    def stolen(self) -> Spread | None:
        """The shares of the machine that its host took away during single cases."""
        shares = [
            share
            for workload, peers in self.values.items()
            for peer in peers
            for share in self.by_round(workload, peer, "stolen").values()
        ]
        return Spread.of(shares) if shares else None

    def best(
        self, workload: str, peers: Sequence[str], key: str, *, higher: bool
    ) -> tuple[str, Spread | None] | None:
        """Whoever of `peers` has the best median, and Penstock's ratio to it."""
        spreads = {peer: self.spread(workload, peer, key) for peer in peers}
        medians = {peer: s.median for peer, s in spreads.items() if s is not None}
        if not medians:
            return None
        name = (max if higher else min)(medians, key=lambda peer: medians[peer])
        return name, self.ratio(workload, name, key)


def ratio(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Spread | None:
    """Of the rounds that have both; None when there is none."""
    both = [ours[n] / theirs[n] for n in sorted(ours.keys() & theirs.keys()) if theirs[n]]
    return Spread.of(both) if both else None
