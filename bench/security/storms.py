"""Storms of logins with wrong passwords, and what other clients notice of them.

The storm is a process of its own (`storm_load.py`). The others are one producer and one consumer
that were let in by another listener: how long a message takes from the one to the other.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.peers.figures import OURS, Results
from bench.peers.goals import NOBODY, Goal
from bench.peers.pacing import paced
from bench.peers.rounds import Progress, warm_up
from bench.peers.workloads import END_TO_END, Figures, Metric, Workload, a_topic, at_a_rate

from penstock.kafka.sasl import PLAIN

from .locked import LOGINS, SCRAM, USER, LockedPenstock
from .servers import authority

LOGINS_PER_S = 1_000
MESSAGES_PER_S = 500
ROUNDS = 3
LOAD_TIMES = 5
"""A case lasts so many times as long as others: one pause of the machine must not be a percent."""
LEAD_S = 1.0
"""How long the storm rages before the others are looked at."""
END_S_MAX = 60.0
P99_MS_MAX = 50.0
BEGUN = Metric("begun_per_s", "logins tried", "1/s", True)
REFUSED = Metric("refused_per_s", "logins refused", "1/s", True)
CORES = Metric("cores", "the node's processor time", "cores", False)
SECTION = f"wrong passwords: other clients, {MESSAGES_PER_S} messages/s end to end"
CALM = Workload(SECTION, "no storm", (*END_TO_END, CORES), copies_in_title=True)
STORMS: dict[Workload, tuple[str, str]] = {
    Workload(
        SECTION,
        f"{LOGINS_PER_S:,} wrong logins/s by {mechanism}, {listener}",
        (*END_TO_END, BEGUN, REFUSED, CORES),
        copies_in_title=True,
    ): (listener, mechanism)
    for listener in LOGINS
    for mechanism in (PLAIN, SCRAM)
}
WORKLOADS = (CALM, *STORMS)
GOALS = tuple(Goal(w.name, END_TO_END[1], NOBODY, P99_MS_MAX) for w in STORMS)
STEPS = ROUNDS * len(WORKLOADS)


def measure(folder: Path, seconds: float, results: Results, progress: Progress) -> None:
    """All storms upon one node."""
    node = LockedPenstock(folder / "storms")
    try:
        node.start()
        node.add_user()
        warm_up(node)
        for number in range(1, ROUNDS + 1):
            for workload in WORKLOADS:
                progress.step(f"round {number} of {ROUNDS}: {workload.name}")
                figures = _others(node, STORMS.get(workload), LOAD_TIMES * seconds)
                results.add(workload.name, OURS, number, figures=figures)
    finally:
        node.stop()


def _others(node: LockedPenstock, storm: tuple[str, str] | None, seconds: float) -> Figures:
    """What others notice of a storm; without one, of an ordinary day."""
    raging = None if storm is None else _Storm(node, *storm, seconds + LEAD_S)
    try:
        time.sleep(LEAD_S if raging else 0)
        with a_topic(node) as topic:
            began, cpu_s = time.perf_counter(), node.cpu_seconds()
            done = paced(
                node, topic, size=100, rate=MESSAGES_PER_S, messages_per_request=1, seconds=seconds
            )
            cores = (node.cpu_seconds() - cpu_s) / (time.perf_counter() - began)
        figures = at_a_rate(MESSAGES_PER_S, done.reached_per_s, done.latencies_ns)
        return figures | {"cores": cores} | (raging.end() if raging else {})
    finally:
        if raging:
            raging.kill()


class _Storm:
    """One storm under way."""

    def __init__(self, node: LockedPenstock, listener: str, mechanism: str, seconds: float) -> None:
        order: dict[str, Any] = {
            "host": node.host,
            "port": node.login_ports[listener],
            "mechanism": mechanism,
            "user": USER,
            "rate": LOGINS_PER_S,
            "seconds": seconds,
        }
        if listener.endswith("SSL"):
            order["trusted"] = authority().pem
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.security.storm_load"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def end(self) -> dict[str, float]:
        """Waits for its end; what it has done."""
        told, _ = self._process.communicate(timeout=END_S_MAX)
        found: dict[str, float] = json.loads(told)
        return found

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()
