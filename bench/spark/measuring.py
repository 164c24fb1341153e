"""What all measurements on Spark share: the session, processor time, memory, and turns.

Penstock's source and sink and those of Spark's own Kafka connector ("kafka", where its jars are in
build/spark-kafka-libs) are measured in one JVM, in turns, so that a machine whose speed changes is
fair to both; the first turn warms up and does not count. Processor time is that of the node, the
JVM and its Python workers together: unlike rows per second it says something on a busy machine,
too.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.run import ROOT

from penstock.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS = ROOT / "build" / "spark-kafka-libs"
OURS, PEER = "penstock", "kafka"
PARTITIONS = 2
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
TICKS_S = os.sysconf("SC_CLK_TCK")


def formats() -> tuple[str, ...]:
    """The connectors that can be measured here."""
    return (OURS, PEER) if any(JARS.glob("*.jar")) else (OURS,)


def session() -> SparkSession:
    settings = dict(SETTINGS)
    if jars := sorted(JARS.glob("*.jar")):
        settings["spark.jars"] = ",".join(map(str, jars))
    return start_session("penstock-bench", "local[2]", settings)


def in_turns(runs: int, measured: Mapping[str, Callable[[], float]]) -> dict[str, dict[str, Any]]:
    """Seconds of each run of each of them, and the processor time of a run."""
    found: dict[str, dict[str, Any]] = {name: {"s": [], "cpu_s": []} for name in measured}
    for turn in range(runs + 1):
        for name, run in measured.items():
            before = cpu_s()
            took_s = run()
            if turn:
                found[name]["s"].append(took_s)
                found[name]["cpu_s"].append(cpu_s() - before)
    return found


def figures(label: str, found: dict[str, dict[str, Any]], rows: int) -> dict[str, float]:
    """Rows per second, processor time per row, and how ours stands to the peer."""
    named: dict[str, float] = {}
    for name, times in found.items():
        named[f"{label}_{name}_rows_s"] = rows / statistics.median(times["s"])
        named[f"{label}_{name}_rows_s_min"] = rows / max(times["s"])
        named[f"{label}_{name}_rows_s_max"] = rows / min(times["s"])
        named[f"{label}_{name}_cpu_us_per_row"] = statistics.median(times["cpu_s"]) / rows * 1e6
    if PEER in found:
        ours, peer = (named[f"{label}_{name}_rows_s"] for name in (OURS, PEER))
        named[f"{label}_ratio"] = ours / peer
    return named


def processes() -> Iterator[Path]:
    """This process and all below it, in /proc."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended meanwhile
    for pid in parents:
        above = pid
        while above not in (0, os.getpid()):
            above = parents.get(above, 0)
        if above:
            yield Path("/proc", str(pid))


def cpu_s() -> float:
    """Processor time of all of them so far."""
    total = 0
    for process in processes():
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        total += int(fields[11]) + int(fields[12])
    return total / TICKS_S


def worker_mb_max() -> float:
    """The largest resident size that a Python worker of Spark ever had."""
    found = 0.0
    for process in processes():
        try:
            if b"-m\0pyspark." in (process / "cmdline").read_bytes():
                status = (process / "status").read_text()
                found = max(found, int(status.partition("VmHWM:")[2].split()[0]) / 1024)
        except OSError:
            continue  # it has ended meanwhile
    return found
