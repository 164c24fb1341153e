"""The three-node measurements (`cluster.py`) as one workload of the table."""

from __future__ import annotations

import sys
from pathlib import Path

from . import cluster
from .figures import Results
from .goals import KAFKA, Goal
from .kafka_server import KafkaServer
from .penstock_server import PenstockServer
from .rounds import Kind, Progress, rotated
from .workloads import Metric, Workload

KINDS: dict[Kind, str] = {PenstockServer: "penstock", KafkaServer: "kafka"}

THREE_NODES = Workload(
    f"{cluster.REPLICATION}; {cluster.DURABILITY}",
    "cluster",
    tuple(Metric(m.key, m.label, m.unit, m.higher_is_better) for m in cluster.MEASURES),
    copies_in_title=True,
)
GOALS = tuple(
    Goal(THREE_NODES.name, metric, KAFKA, measure.goal)
    for metric, measure in zip(THREE_NODES.metrics, cluster.MEASURES, strict=True)
    if measure.goal is not None
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
        try:
            figures = cluster.measure(KINDS[kind], folder, seconds)
        except Exception as e:  # whatever a peer does wrong must not end the run
            print(f"  failed: {e}", file=sys.stderr, flush=True)
            what = f"{type(e).__name__}: {e}"
            results.add(THREE_NODES.name, kind.name, number, failed=what)
        else:
            results.add(THREE_NODES.name, kind.name, number, figures=figures)
