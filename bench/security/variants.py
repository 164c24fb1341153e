"""What a feature costs: a node with it and a node without, side by side, loaded in short turns.

Both run for the whole comparison; the one that has no turn idles. Turns are short and many, so that
what a machine does beside them is in both alike: a difference of a few percent can be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from bench.peers.figures import OURS, Results
from bench.peers.goals import Goal
from bench.peers.rounds import Kind, Progress, settle, warm_up
from bench.peers.server import Server
from bench.peers.workloads import CPU, RATE, WORKLOADS, Workload

from .encrypted import NOT_ENCRYPTED, Encrypted, NotEncrypted
from .locked import LockedPenstock, RuledPenstock

RULES = 10_000
TURNS = 20
TURN_S = 0.4
NO_RULES = "Penstock without ACLs"
MORE_MAX = 0.03
"""By how much rules may slow publishing down."""
ENCRYPTED_OF_PLAIN_MIN = 0.7
"""Of what a node publishes in batches whose logs are not encrypted."""
_SINGLE = "publish 100 B, one per request, 64 connections, acks=1"
_SMALL_IN_BATCHES = "publish 100 B, 256 KiB batches, 8 connections, acks=1"
_BATCHES = "publish 1 KB, 256 KiB batches, 8 connections, acks=1"
_READ = "consume 1 KB from cache"


class Unruled(LockedPenstock):
    """The node that has the same listeners and users, and no authorizer."""

    name: ClassVar[str] = NO_RULES


@dataclass(frozen=True)
class Comparison:
    """`kind` has the feature and is Penstock's column, `other` has not."""

    title: str
    kind: Kind
    other: Kind
    prepare: Callable[[Server], None]
    """What the node with the feature needs besides its settings."""
    workloads: tuple[Workload, ...]
    goals: tuple[Goal, ...]


def _add_rules(server: Server) -> None:
    assert isinstance(server, RuledPenstock)
    server.add_rules(RULES)


def _nothing(_server: Server) -> None:
    """It is in the settings."""


def _of_catalogue(section: str, *names: str) -> tuple[Workload, ...]:
    """Workloads under names of their own."""
    return tuple(
        replace(workload, section=section, name=f"{section}: {workload.name}", copies_in_title=True)
        for workload in WORKLOADS
        if workload.name in names
    )


def _of_rules() -> Comparison:
    section = f"{RULES:,} ACLs"
    workloads = _of_catalogue(section, _SINGLE, _BATCHES)
    goals = [Goal(w.name, RATE, NO_RULES, 1 - MORE_MAX) for w in workloads]
    goals += [Goal(w.name, CPU, NO_RULES, 1 + MORE_MAX) for w in workloads]
    return Comparison(section, RuledPenstock, Unruled, _add_rules, workloads, tuple(goals))


def _of_encryption() -> Comparison:
    section = "encryption at rest"
    workloads = _of_catalogue(section, _SINGLE, _SMALL_IN_BATCHES, _BATCHES, _READ)
    goals = tuple(
        Goal(w.name, RATE, NOT_ENCRYPTED, ENCRYPTED_OF_PLAIN_MIN)
        for w in workloads
        if "batches" in w.name
    )
    return Comparison(section, Encrypted, NotEncrypted, _nothing, workloads, goals)


COMPARISONS = (_of_rules(), _of_encryption())


def compare(
    comparison: Comparison, folder: Path, seconds: float, results: Results, progress: Progress
) -> None:
    """All turns of one comparison; `seconds` is the length of a case elsewhere."""
    with ExitStack() as stack:
        nodes: list[Server] = []
        for kind in (comparison.kind, comparison.other):
            progress.step(f"{comparison.title}: starting {kind.name}")
            node = kind(folder / f"variant-{len(nodes)}")
            nodes.append(node)
            stack.callback(node.stop)
            node.start()
            if kind is comparison.kind:
                comparison.prepare(node)
            warm_up(node)
        for workload in comparison.workloads:
            progress.step(f"{workload.name}, {TURNS} turns each")
            for turn in range(1, TURNS + 1):
                _turn(workload, nodes if turn % 2 else nodes[::-1], turn, seconds, results)


def _turn(
    workload: Workload, nodes: Sequence[Server], turn: int, seconds: float, results: Results
) -> None:
    assert workload.run is not None
    for node in nodes:
        settle()
        figures = workload.run(node, TURN_S * seconds)
        results.add(workload.name, node.name, turn, figures=figures)


STEPS = sum(2 + len(comparison.workloads) for comparison in COMPARISONS)
NAMES = tuple(dict.fromkeys(comparison.other.name for comparison in COMPARISONS))
assert OURS not in NAMES
