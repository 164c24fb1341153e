"""What is to be reached: Penstock's share of a peer's figure, or a figure by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .figures import OURS, Results, Spread, State
from .workloads import END_TO_END, WORKLOADS, Metric, Workload

KAFKA = "Apache Kafka"
THE_OTHERS = "the best of the others"
NOBODY = ""


@dataclass(frozen=True)
class Goal:
    """Penstock's figure divided by that of `against` is at least, or at most, `goal`; without
    anybody to compare with, it is the figure itself.
    """

    workload: str
    metric: Metric
    against: str
    goal: float

    def goal_text(self) -> str:
        unit = "x" if self.against else f" {self.metric.unit}"
        least = "least" if self.metric.higher_is_better else "most"
        return f"at {least} {self.goal:g}{unit}".rstrip()

    def met(self, value: float) -> bool:
        return value >= self.goal if self.metric.higher_is_better else value <= self.goal


class Verdict:
    """A goal beside what was measured."""

    def __init__(self, goal: Goal, results: Results) -> None:
        self.goal = goal
        key = goal.metric.key
        self.ours = results.spread(goal.workload, OURS, key)
        self.state = results.state(goal.workload, OURS)
        self.theirs: Spread | None = None
        self.against = goal.against
        self.ratio: Spread | None = None
        self.their_state: State | None = None
        if goal.against == THE_OTHERS:
            others = [name for name in results.peers if name not in (OURS, KAFKA)]
            higher = goal.metric.higher_is_better
            if found := results.best(goal.workload, others, key, higher=higher):
                self.against, self.ratio = found
        elif goal.against:
            self.their_state = results.state(goal.workload, goal.against)
            self.ratio = results.ratio(goal.workload, goal.against, key)
        if self.against:
            self.theirs = results.spread(goal.workload, self.against, key)

    def text(self) -> str:
        """yes, NO, or why neither can be said."""
        if self.ours is None:
            return (self.state.nothing or "") if self.state.kept else "NO: the rate was not kept"
        if not self.goal.against:
            return "yes" if self.goal.met(self.ours.median) else "NO"
        if self.ratio is None:
            if self.their_state is None:
                return "nothing to compare with (no peer measured)"
            if not self.their_state.kept:
                return "yes: only Penstock kept the rate"
            return f"nothing to compare with ({self.their_state.nothing})"
        return "yes" if self.goal.met(self.ratio.median) else "NO"


def _of(workloads: Iterable[Workload], key: str, against: str, goal: float) -> Iterator[Goal]:
    for workload in workloads:
        for metric in workload.metrics:
            if metric.key == key:
                yield Goal(workload.name, metric, against, goal)


def _named(*parts: str) -> list[Workload]:
    """The workloads whose names have all of these in them."""
    return [w for w in WORKLOADS if all(part in w.name for part in parts)]


def _slow_enough(workload: Workload) -> bool:
    return " 1,000 messages/s" in workload.name or " 10,000 messages/s" in workload.name


LARGE_SMALL = [
    w
    for w in _named("256 KiB batches", "acks=1")
    if w.name.startswith(("publish 100 B", "publish 1 KB"))
]
LARGE_BATCHES = _named("256 KiB batches", "acks=1")
PACED = [w for w in WORKLOADS if w.metrics == END_TO_END]

GOALS: tuple[Goal, ...] = (
    *_of(LARGE_SMALL, "per_s", KAFKA, 1.0),
    *_of(_named("one per request, 64 connections, acks=1"), "per_s", KAFKA, 1.0),
    *_of(_named("of JSON"), "per_s", KAFKA, 1.0),
    *_of(_named("consume", "from cache"), "per_s", KAFKA, 1.0),
    *_of(filter(_slow_enough, PACED), "p99_ms", KAFKA, 0.5),
    *_of(_named("start until"), "s", KAFKA, 0.2),
    *_of(_named("memory, idle"), "mb", KAFKA, 0.2),
    *_of(_named("acks=1"), "cpu_s_per_million", KAFKA, 1.0),
    *_of(_named("consume", "from cache"), "cpu_s_per_million", KAFKA, 1.0),
    *_of(LARGE_BATCHES, "per_s", THE_OTHERS, 1.0),
    *_of(_named("one per request, 1 connection, acks=1"), "ack_p50_ms", THE_OTHERS, 1.2),
    *_of(_named("one per request, 1 connection, acks=1"), "ack_p99_ms", THE_OTHERS, 1.2),
    *_of(_named("end to end, 1,000,000"), "p99_ms", NOBODY, 10.0),
)
