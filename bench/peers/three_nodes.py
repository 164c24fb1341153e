"""The three-node measurements (`cluster.py`, `queue_nodes.py`) as workloads of the table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from . import cluster, queue_nodes
from .figures import Results
from .goals import KAFKA, Goal
from .kafka_server import KafkaServer
from .penstock_server import PenstockServer
from .rounds import Kind, Progress, Stolen, rotated
from .workloads import Workload

KINDS: dict[Kind, str] = {PenstockServer: "penstock", KafkaServer: "kafka"}
SECTION = f"cluster: {cluster.REPLICATION}; {cluster.DURABILITY}"

LOADED = tuple(
    Workload(SECTION, part.name, part.metrics, copies_in_title=True) for part in cluster.PARTS
)
WORKLOADS = (*LOADED, *queue_nodes.WORKLOADS)
GOALS = (
    *(
        Goal(part.name, metric, KAFKA, part.goals[metric.key])
        for part in cluster.PARTS
        for metric in part.metrics
        if metric.key in part.goals
    ),
    *queue_nodes.GOALS,
)


class Turn(NamedTuple):
    """What one cluster gives at once."""

    name: str
    workloads: tuple[Workload, ...]
    measure: Callable[[str, Path, float], cluster.Found]


TURNS = (
    Turn("three nodes", LOADED, cluster.measure),
    Turn("a queue on three nodes", queue_nodes.WORKLOADS, queue_nodes.measure),
)


def chosen_turns(chosen: Sequence[Workload]) -> list[Turn]:
    """Those that give one of these."""
    return [turn for turn in TURNS if any(workload in chosen for workload in turn.workloads)]


def run_round(
    turn: Turn,
    kinds: list[Kind],
    number: int,
    seconds: float,
    folder: Path,
    results: Results,
    progress: Progress,
) -> None:
    """One cluster of each kind, in turns."""
    for kind in rotated(kinds, number - 1):
        progress.step(f"round {number}, {kind.name}: {turn.name}")
        stolen = Stolen()
        try:
            found = turn.measure(KINDS[kind], folder, seconds)
        except Exception as e:  # whatever a peer does wrong must not end the run
            print(f"  failed: {e}", file=sys.stderr, flush=True)
            what = f"{type(e).__name__}: {e}"
            for workload in turn.workloads:
                results.add(workload.name, kind.name, number, failed=what)
        else:
            share = stolen.share()
            for name, figures in found.items():
                results.add(name, kind.name, number, figures={**figures, "stolen": share})
