"""`make bench-cluster`: measures what docs/performance-tables.md states of a cluster.

Each part starts three nodes on 127.0.0.1, as a user does, and takes them down again. Results go to
build/bench/cluster.md and cluster.json. Three nodes and the load share the machine's cores: run it
on a machine that does nothing else; the load average of the minute before is noted.
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

from penstock.cli.values import parse_size

from . import copies, going, transactions
from .nodes import Options


@dataclass(frozen=True)
class Part:
    name: str
    run: Callable[[Options], dict[str, Any]]
    metrics: tuple[Metric, ...]


def at_most(key: str, label: str, goal: float) -> Metric:
    return Metric(key, label, goal, at_most=True)


def _pauses(role: str, what: str) -> tuple[Metric, ...]:
    """A killed node as both clients see it."""
    return tuple(
        at_most(f"{role}_{client}_{figure}_s", f"{what}, {client}: {figure} s", goal)
        for client in ("confluent", "raw")
        for figure, goal in (("median", 1), ("worst", 3))
    )


PARTS = (
    Part(
        "fail-over",
        going.failover,
        (
            *_pauses("leader", "kill -9 of a partition leader"),
            *_pauses("metadata", "kill -9 of the metadata leader"),
            at_most("errors", "producer errors", 0),
        ),
    ),
    Part(
        "rolling restart",
        going.rolling,
        (
            at_most("errors", "producer errors", 0),
            Metric("rolling_p50_ms", "p50 ms"),
            at_most("rolling_p99_ms", "p99 ms", 100),
            Metric("rolling_max_ms", "longest ms"),
        ),
    ),
    Part(
        "replication",
        copies.replication,
        tuple(
            Metric(f"{name}_{figure}", f"{what}, {label}")
            for figure, label in (
                ("p50_ms", "1,000 messages/s, p50 ms"),
                ("p99_ms", "1,000 messages/s, p99 ms"),
                ("mb_per_s", "1 MB batches, MB/s"),
                ("mb_per_core_s", "1 MB batches, MB per core-second of all nodes"),
            )
            for name, what in (("rf1", "one copy"), ("rf3", "three copies"))
        ),
    ),
    Part(
        "transactions",
        transactions.transactions,
        tuple(
            metric
            for client in ("confluent", "raw")
            for metric in (
                Metric(f"{client}_txn_commit_p50_ms", f"{client}: commit, p50 ms"),
                at_most(f"{client}_txn_commit_p99_ms", f"{client}: commit, p99 ms", 20),
                at_most(
                    f"{client}_paced_cost_percent",
                    f"{client}: 1,000 messages every 100 ms, throughput lost to transactions, %",
                    10,
                ),
                Metric(f"{client}_plain_full_per_s", f"{client}: full speed, messages/s"),
                at_most(
                    f"{client}_full_cost_percent",
                    f"{client}: full speed, lost to a commit every 100 ms, %",
                    10,
                ),
                Metric(
                    f"{client}_full_cpu_cost_percent",
                    f"{client}: full speed, more CPU of all nodes per message, %",
                ),
            )
        ),
    ),
    Part(
        "catch-up",
        copies.catch_up,
        (
            Metric("catch_up_mb_per_s", "follower MB/s"),
            Metric("fetch_mb_per_s", "raw fetch of the same, MB/s"),
            Metric("file_mb_per_s", "reading the files, MB/s"),
            Metric("share_of_fetch", "follower as a share of raw fetch", 0.5),
            Metric("before_p50_ms", "leader's p50 ms before"),
            Metric("during_p50_ms", "leader's p50 ms during"),
            Metric("before_p99_ms", "leader's p99 ms before"),
            Metric("during_p99_ms", "leader's p99 ms during"),
            at_most("p99_ratio", "p99 during / before", 3),
        ),
    ),
    Part(
        "idle",
        copies.idle,
        (
            at_most("cpu_percent", "1,000 partitions: CPU of all nodes, % of a core", 5),
            Metric("rss_mb", "1,000 partitions: MB of the largest node"),
        ),
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--repeat", type=int, default=1, help="runs per part (default 1)")
    parser.add_argument("--only", default="", help="only parts whose name contains this text")
    parser.add_argument("--kills", type=int, default=10, help="kills of each kind (default 10)")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a load (default 5)")
    parser.add_argument("--catch-up", default="1G", metavar="SIZE", help="missed data (default 1G)")
    parser.add_argument("--dir", default=None, help="where nodes keep their data")
    parser.add_argument(
        "--touch-memory",
        default="6G",
        metavar="SIZE",
        help="memory to write to before large loads, as for bench/run.py (default 6G)",
    )
    given = parser.parse_args()
    chosen = [part for part in PARTS if given.only in part.name]
    if not chosen:
        raise SystemExit(f"no part has {given.only!r} in its name")
    options = Options(
        given.kills,
        given.seconds,
        parse_size(given.catch_up),
        parse_size(given.touch_memory),
        given.dir,
    )
    results: list[tuple[Part, list[dict[str, Any]]]] = []
    for part in chosen:
        runs = []
        for number in range(given.repeat):
            busy = round(os.getloadavg()[0], 2)
            print(f"{part.name} ({number + 1} of {given.repeat}), load {busy}", file=sys.stderr)
            runs.append({"load_before": busy, **part.run(options)})
        results.append((part, runs))
    table = "\n".join(rows(results))
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "cluster.md").write_text(f"{machine()}; {given.repeat} runs each.\n\n{table}\n")
    record = {"machine": machine(), "parts": {part.name: runs for part, runs in results}}
    (OUT / "cluster.json").write_text(json.dumps(record, indent=2) + "\n")
    print(table)


if __name__ == "__main__":
    main()
