"""The three-node measurements (`cluster.py`) as workloads of the table."""

from __future__ import annotations

import sys
from pathlib import Path

from . import cluster
from .figures import Results
from .goals import KAFKA, Goal
from .kafka_server import KafkaServer
from .penstock_server import PenstockServer
from .rounds import Kind, Progress, Stolen, rotated
from .workloads import Workload

KINDS: dict[Kind, str] = {PenstockServer: "penstock", KafkaServer: "kafka"}
SECTION = f"cluster: {cluster.REPLICATION}; {cluster.DURABILITY}"

WORKLOADS = tuple(
    Workload(SECTION, part.name, part.metrics, copies_in_title=True) for part in cluster.PARTS
)
GOALS = tuple(
    Goal(part.name, metric, KAFKA, part.goals[metric.key])
    for part in cluster.PARTS
    for metric in part.metrics
    if metric.key in part.goals
)


def run_round(
    kinds: list[Kind],
    number: int,
    seconds: float,
    folder: Path,
    results: Results,
    progress: Progress,
) -> None:
    """One cluster of each kind, in turns."""
    for kind in rotated(kinds, number - 1):
        progress.step(f"round {number}, {kind.name}: three nodes")
        stolen = Stolen()
        try:
            found = cluster.measure(KINDS[kind], folder, seconds)
        except Exception as e:  # whatever a peer does wrong must not end the run
            print(f"  failed: {e}", file=sys.stderr, flush=True)
            what = f"{type(e).__name__}: {e}"
            for workload in WORKLOADS:
                results.add(workload.name, kind.name, number, failed=what)
        else:
            share = stolen.share()
            for name, figures in found.items():
                results.add(name, kind.name, number, figures={**figures, "stolen": share})
