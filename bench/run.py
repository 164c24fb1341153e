"""Measures what docs/performance-tables.md states of one node by itself: `make bench`.

Each case is a `penstock bench` command that starts its own node on core 0 and loads it from
core 1. It is repeated; the table shows median and range. Results go to
build/bench/results.md and results.json. Run it on a machine that does nothing else: two
busy cores make every figure worse.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "bench"
CASE_SECONDS_MAX = 600


def number_text(value: float) -> str:
    """Six digits at most, and no exponent."""
    return f"{value:,g}" if abs(value) < 1e6 else f"{value:,.0f}"


@dataclass(frozen=True)
class Metric:
    """One figure of a case's JSON, and what it should be: at least or at most `goal`."""

    key: str
    label: str
    goal: float | None = None
    at_most: bool = False

    def verdict(self, value: float) -> str:
        if self.goal is None:
            return ""
        met = value <= self.goal if self.at_most else value >= self.goal
        return "yes" if met else "NO"

    def goal_text(self) -> str:
        if self.goal is None:
            return ""
        return f"{'at most' if self.at_most else 'at least'} {number_text(self.goal)}"


class Measured(Protocol):
    """What has a row in the table for each of its metrics."""

    @property
    def name(self) -> str: ...

    @property
    def metrics(self) -> tuple[Metric, ...]: ...


@dataclass(frozen=True)
class Case:
    name: str
    args: tuple[str, ...]
    metrics: tuple[Metric, ...]


MESSAGES_PER_CORE = "messages per core-second"
CORES = Metric("broker_cores", "broker cores busy")
LATENCY = (
    Metric("p50_ms", "p50 ms"),
    Metric("p99_ms", "p99 ms"),
    Metric("p999_ms", "p99.9 ms"),
    CORES,
)


def loaded(*args: str) -> tuple[str, ...]:
    return (*args, "--start")


CASES = (
    Case(
        "produce, 100 B messages, 1 MB requests",
        loaded("produce", "--batch-bytes", "1M", "--connections", "2", "--depth", "2"),
        (
            Metric("messages_per_core_s", MESSAGES_PER_CORE, 10e6),
            Metric("messages_per_s", "messages/s"),
            CORES,
        ),
    ),
    Case(
        "produce, 100 B messages, 16 KB batches",
        loaded("produce", "--batch-bytes", "16K", "--connections", "4", "--depth", "4"),
        (
            Metric("messages_per_core_s", MESSAGES_PER_CORE, 3e6),
            Metric("messages_per_s", "messages/s"),
            CORES,
        ),
    ),
    Case(
        "produce, one message per request, 64 connections",
        loaded("produce", "--batch-bytes", "0", "--connections", "64", "--depth", "1"),
        (
            Metric("requests_per_core_s", "requests per core-second", 50_000),
            Metric("requests_per_s", "requests/s"),
            CORES,
        ),
    ),
    Case(
        "produce, one message per request, one connection",
        loaded("produce", "--batch-bytes", "0", "--connections", "1", "--depth", "1"),
        (
            Metric("requests_per_core_s", "requests per core-second"),
            Metric("requests_per_s", "requests/s"),
            CORES,
        ),
    ),
    Case(
        "fetch from the page cache, 1 MB answers",
        loaded("consume", "--fetch-bytes", "1M"),
        (Metric("mb_per_s", "MB/s", 1500), Metric("mb_per_core_s", "MB per core-second"), CORES),
    ),
    Case(
        "fetch from the page cache, 64 KB answers",
        loaded("consume", "--fetch-bytes", "64K", "--batch-bytes", "16K", "--connections", "4"),
        (Metric("mb_per_s", "MB/s"), Metric("mb_per_core_s", "MB per core-second"), CORES),
    ),
    Case(
        "end to end, 1,000 messages/s one by one",
        loaded("latency", "--rate", "1000"),
        (
            Metric("p50_ms", "p50 ms", 0.5, at_most=True),
            Metric("p99_ms", "p99 ms", 5, at_most=True),
            *LATENCY[2:],
        ),
    ),
    Case("end to end, 10,000 messages/s one by one", loaded("latency", "--rate", "10000"), LATENCY),
    Case(
        "end to end, 1 M messages/s in batches of 1,000",
        loaded("latency", "--rate", "1000000", "--messages-per-request", "1000"),
        LATENCY,
    ),
    Case(
        "produce through confluent-kafka",
        loaded("produce", "--client", "confluent", "--batch-bytes", "1M"),
        (Metric("messages_per_s", "messages/s"), CORES),
    ),
    Case(
        "consume through confluent-kafka",
        loaded("consume", "--client", "confluent"),
        (Metric("messages_per_s", "messages/s"), CORES),
    ),
    Case(
        "ready with an empty folder",
        ("startup",),
        (Metric("ready_s_median", "seconds", 1, at_most=True),),
    ),
    Case(
        "ready with 1,000 partitions of data, after a clean stop",
        ("startup", "--partitions", "1000"),
        (Metric("ready_s_median", "seconds", 3, at_most=True),),
    ),
    Case(
        "ready with 1,000 partitions of data, after kill -9",
        ("startup", "--partitions", "1000", "--kill"),
        (Metric("ready_s_median", "seconds", 3, at_most=True),),
    ),
    Case(
        "memory, idle and with 10,000 idle connections",
        ("idle", "--connections", "10000"),
        (
            Metric("rss_mb", "MB idle", 60, at_most=True),
            Metric("rss_with_connections_mb", "MB with connections", 100, at_most=True),
            Metric("bytes_per_connection", "bytes per connection"),
        ),
    ),
    Case(
        "groups: 100 members, 1,000 partitions",
        loaded("groups", "--groups", "0"),
        (
            Metric("classic_form_s", "seconds until a classic group stands"),
            Metric("classic_rebalance_s", "seconds of a classic rebalance", 3, at_most=True),
            Metric("consumer_join_s", "seconds until a newcomer has its share (KIP-848)"),
            Metric("consumer_moved", "partitions moved for it"),
            Metric("consumer_moved_too_many", "of them needlessly", 0, at_most=True),
        ),
    ),
    Case(
        "1,000 idle groups",
        loaded("groups", "--members", "2", "--partitions", "1", "--groups", "1000"),
        (
            Metric("no_groups_cores", "cores busy without groups"),
            Metric("offsets_only_cores", "with 1,000 that hold offsets", 0.01, at_most=True),
            Metric("empty_cores", "and 1,000 empty ones", 0.01, at_most=True),
            Metric("one_member_cores", "and 1,000 with a silent member", 0.01, at_most=True),
            Metric("heartbeat_cores", "when each of those beats every 3 s"),
        ),
    ),
)


def run_case(case: Case, seconds: float, touch: str, folder: str | None) -> dict[str, Any]:
    """One run of a case: what it printed as JSON."""
    command = [sys.executable, "-m", "penstock.cli", "bench", *case.args, "--json"]
    if "--start" in case.args:
        command += ["--seconds", str(seconds), "--touch-memory", touch]
    if folder is not None:
        command += ["--dir", folder]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=CASE_SECONDS_MAX, check=False
    )
    if done.returncode:
        raise SystemExit(f"{case.name}: {' '.join(command)} failed: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rows(results: Sequence[tuple[Measured, list[dict[str, Any]]]]) -> Iterator[str]:
    """The lines of the Markdown table."""
    yield "| case | figure | median | range | goal | met |"
    yield "|---|---|---:|---|---|---|"
    for case, runs in results:
        for metric in case.metrics:
            values = [run[metric.key] for run in runs if metric.key in run]
            if not values:
                continue
            middle = statistics.median(values)
            spread = f"{number_text(min(values))} to {number_text(max(values))}"
            shown = number_text(middle)
            yield (
                f"| {case.name} | {metric.label} | {shown} | {spread} | {metric.goal_text()} |"
                f" {metric.verdict(middle)} |"
            )


def machine() -> str:
    """What the figures were measured on."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{os.cpu_count()} cores of {model}, Linux {platform.release()}, {python}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure Penstock; write build/bench/results.md.")
    parser.add_argument("--repeat", type=int, default=3, help="runs per case (default 3)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a run (default 3)")
    parser.add_argument("--only", default="", help="only cases whose name contains this text")
    parser.add_argument("--dir", default=None, help="where nodes keep their data")
    parser.add_argument(
        "--touch-memory",
        default="6G",
        metavar="SIZE",
        help="memory to write to before each run, since a virtual machine's is slow at first use"
        " (default 6G, at most half of what is available)",
    )
    options = parser.parse_args()
    chosen = [case for case in CASES if options.only in case.name]
    if not chosen:
        raise SystemExit(f"no case has {options.only!r} in its name")
    results = []
    for case in chosen:
        runs = []
        for number in range(options.repeat):
            print(f"{case.name} ({number + 1} of {options.repeat})", file=sys.stderr, flush=True)
            runs.append(run_case(case, options.seconds, options.touch_memory, options.dir))
        results.append((case, runs))
    table = "\n".join(rows(results))
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "results.md").write_text(f"{machine()}; {options.repeat} runs each.\n\n{table}\n")
    record = {"machine": machine(), "cases": {case.name: runs for case, runs in results}}
    (OUT / "results.json").write_text(json.dumps(record, indent=2) + "\n")
    print(table)


if __name__ == "__main__":
    main()
