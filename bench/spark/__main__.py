"""`make bench-spark`: measures what docs/performance-tables.md states of pipelines on Spark.

One node, and one Spark with two threads, share the machine's cores: run it on a machine that does
nothing else. Results go to build/bench/spark.md and spark.json. Where the jars of Spark's own Kafka
connector are in build/spark-kafka-libs (`make java` fetches them), it is measured on the same
topics in the same run, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.run import OUT, Metric, machine, rows

from .measuring import OURS, PEER, formats
from .reading import reading
from .writing import AT_LEAST_ONCE, writing

NAMES = {OURS: "Penstock", PEER: "Spark's connector", AT_LEAST_ONCE: "Penstock, at least once"}


@dataclass(frozen=True)
class Part:
    name: str
    run: Callable[[int, int], list[dict[str, Any]]]
    rows: int
    metrics: tuple[Metric, ...]


def _speeds(label: str, what: str, goal: float | None, *ways: str) -> tuple[Metric, ...]:
    """Speed and processor time of each way, and the ratio if there is a peer."""
    speeds = [
        Metric(
            f"{label}_{way}_rows_s", f"{what}, {NAMES[way]}: rows/s", goal if way == OURS else None
        )
        for way in ways
    ]
    times = [
        Metric(f"{label}_{way}_cpu_us_per_row", f"{what}, {NAMES[way]}: CPU µs per row")
        for way in ways
    ]
    ratio = [Metric(f"{label}_ratio", f"{what}: ratio of speeds", 1.0)] if PEER in ways else []
    return (*speeds, *times, *ratio)


PARTS = (
    Part(
        "reading",
        reading,
        8_000_000,
        (
            *_speeds("batch", "batch", 1_000_000, *formats()),
            *_speeds("stream", "micro-batches", 800_000, *formats()),
            *(
                Metric(
                    f"overhead_{name}_s",
                    f"micro-batch over an empty one, {NAMES[name]}: s",
                    0.15 if name == OURS else None,
                    at_most=True,
                )
                for name in formats()
            ),
            Metric("python_worker_mb_max", "largest Python worker, MB"),
        ),
    ),
    Part(
        "writing",
        writing,
        2_000_000,
        (
            *_speeds("write", "no keys", 300_000, *formats(), AT_LEAST_ONCE),
            *_speeds("write_keyed", "with keys", 300_000, *formats(), AT_LEAST_ONCE),
            Metric("write_made_cpu_us_per_row", "making the rows: CPU µs per row"),
            Metric("python_worker_mb_max", "largest Python worker, MB"),
        ),
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs that count (default 5)")
    parser.add_argument("--only", default="", help="only parts whose name contains this text")
    parser.add_argument("--rows", type=int, default=0, help="rows (default 8 and 2 million)")
    given = parser.parse_args()
    chosen = [part for part in PARTS if given.only in part.name]
    if not chosen:
        raise SystemExit(f"no part has {given.only!r} in its name")
    if PEER not in formats():
        print("Spark's own connector is not there: make java fetches it", file=sys.stderr)
    results: list[tuple[Part, list[dict[str, Any]]]] = []
    for part in chosen:
        busy = round(os.getloadavg()[0], 2)
        print(f"{part.name}, load {busy}", file=sys.stderr)
        figures = part.run(given.rows or part.rows, given.runs)
        results.append((part, [*figures, {"load_before": busy}]))
    table = "\n".join(rows(results))
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "spark.md").write_text(f"{machine()}; {given.runs} runs in turns.\n\n{table}\n")
    record = {"machine": machine(), "parts": {part.name: runs for part, runs in results}}
    (OUT / "spark.json").write_text(json.dumps(record, indent=2) + "\n")
    print(table)


if __name__ == "__main__":
    main()
