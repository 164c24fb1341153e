"""What a run found, as text: a live line while it goes on, and a table at the end. Pure functions.

Unavailability of a partition in a fault is the longest time between two acknowledged writes that
ended after the fault had begun; it is taken for the partitions that the fault's victims led.
Writers write to every partition many times a second, so that a quiet partition is one that cannot
be written to.
"""

from __future__ import annotations

import bisect
import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .checker import Violation
from .history import (
    Acked,
    CommittedRead,
    Ended,
    Failed,
    Fault,
    History,
    Initialised,
    Partition,
    Read,
    Stuck,
)

VIOLATIONS_SHOWN = 40


class Row(NamedTuple):
    """One kind of fault."""

    name: str
    times: int
    acked: int
    failed: int
    median: float | None
    worst: float | None
    recovery: float


def unavailable(history: History) -> dict[Fault, list[float]]:
    """For each fault the longest pause in seconds of each partition that its victims led."""
    acked: dict[Partition, list[float]] = defaultdict(list)
    for ack in history.of(Acked):
        acked[ack.partition].append(ack.at)
    for times in acked.values():
        times.sort()
    return {
        fault: [
            longest_pause(acked[partition], fault.began, fault.recovered)
            for partition in fault.led
            if acked[partition]
        ]
        for fault in history.of(Fault)
    }


def longest_pause(times: Sequence[float], begin: float, end: float) -> float:
    """The longest time between two of `times` that touches the span from begin to end."""
    first = max(0, bisect.bisect_right(times, begin) - 1)
    last = bisect.bisect_left(times, end)
    near = [begin if times[first] > begin else times[first], *times[first + 1 : last + 1]]
    if last >= len(times):
        near.append(max(end, near[-1]))
    return max((b - a for a, b in itertools.pairwise(near)), default=0.0)


def rows(history: History) -> list[Row]:
    """The table by kind of fault, in the order of first occurrence."""
    pauses = unavailable(history)
    by_name: dict[str, list[Fault]] = {}
    for fault in history.of(Fault):
        by_name.setdefault(fault.name, []).append(fault)
    acked = sorted(ack.at for ack in history.of(Acked))
    failed = sorted(each.at for each in history.of(Failed))
    made = []
    for name, faults in by_name.items():
        longest = [pause for fault in faults for pause in pauses[fault]]
        made.append(
            Row(
                name,
                len(faults),
                sum(_between(acked, fault.began, fault.recovered) for fault in faults),
                sum(_between(failed, fault.began, fault.recovered) for fault in faults),
                statistics.median(longest) if longest else None,
                max(longest, default=None),
                max(fault.recovered - fault.healed for fault in faults),
            )
        )
    return made


def _between(times: Sequence[float], begin: float, end: float) -> int:
    return bisect.bisect_right(times, end) - bisect.bisect_left(times, begin)


def percentile(values: Iterable[float], part: float) -> float:
    """The value that `part` of the values do not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


def table(history: History, violations: Sequence[Violation]) -> str:
    """The end of a run."""
    lines = [
        f"{'fault':<14}{'times':>6}{'acked':>9}{'failed':>8}"
        f"{'median pause':>14}{'worst pause':>13}{'recovered in':>14}"
    ]
    for row in rows(history):
        lines.append(
            f"{row.name:<14}{row.times:>6}{row.acked:>9}{row.failed:>8}"
            f"{_seconds(row.median):>14}{_seconds(row.worst):>13}{_seconds(row.recovery):>14}"
        )
    latencies = [ack.at - ack.called for ack in history.of(Acked)]
    lines += [
        "",
        f"{len(history.of(Acked))} writes acknowledged, {len(history.of(Failed))} failed, "
        f"{len(history.of(Read))} reads; a write took p50 {percentile(latencies, 0.5) * 1000:.1f} "
        f"ms, p99 {percentile(latencies, 0.99) * 1000:.0f} ms, "
        f"at most {max(latencies, default=0.0):.2f} s",
    ]
    if ended := history.of(Ended):
        committed = sum(each.committed for each in ended)
        ids = len({each.transactional_id for each in history.of(Initialised)})
        made = sum("|chain|" in text for of in history.committed.values() for _, text in of)
        lines.append(
            f"{committed} transactions committed, {len(ended) - committed} aborted; "
            f"{len(history.of(Initialised))} producers had {ids} ids; "
            f"{made} messages came out of the chain, {len(history.of(CommittedRead))} were read as "
            "committed"
        )
    if epochs := new_epochs(history):
        lines.append(
            f"librdkafka has begun a new producer epoch {epochs} times; what it repeats then is "
            "not counted as a duplicate"
        )
    if stuck := history.of(Stuck):
        names = ", ".join(each.who for each in stuck)
        lines.append(f"{names} hung in librdkafka, while their groups took a new member")
    lines.append(f"violations: {len(violations)}")
    lines += [f"  {each.check}: {each.text}" for each in violations[:VIOLATIONS_SHOWN]]
    if len(violations) > VIOLATIONS_SHOWN:
        lines.append(f"  and {len(violations) - VIOLATIONS_SHOWN} more")
    return "\n".join(lines)


def new_epochs(history: History) -> int:
    """How often a producer has begun a new epoch."""
    seen = {writer for of in history.writers.values() for writer in of.values()}
    return sum(epoch > 0 for _, epoch in seen)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
