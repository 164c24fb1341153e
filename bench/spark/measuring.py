"""What all measurements on Spark share: the session, processor time, memory, and turns.

Penstock's source and sink and those of Spark's own Kafka connector ("kafka", where its jars are in
build/spark-kafka-libs) are measured in one JVM, in turns, so that a machine whose speed changes is
fair to both; the first turn warms up and does not count. Processor time is that of the node, the
JVM and its Python workers together: unlike rows per second it says something on a busy machine,
too.
"""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

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


def in_turns(
    label: str, rows: int, runs: int, measured: Mapping[str, Callable[[], float]]
) -> list[dict[str, float]]:
    """The figures of each turn: rows per second, processor time per row, and how ours stands to the
    peer.
    """
    found = []
    for turn in range(runs + 1):
        figures: dict[str, float] = {}
        for name, run in measured.items():
            before = cpu_s()
            figures[f"{label}_{name}_rows_s"] = rows / run()
            figures[f"{label}_{name}_cpu_us_per_row"] = (cpu_s() - before) / rows * 1e6
        if PEER in measured:
            ours, peer = (figures[f"{label}_{name}_rows_s"] for name in (OURS, PEER))
            figures[f"{label}_ratio"] = ours / peer
        if turn:
            found.append(figures)
    return found


def together(*parts: list[dict[str, float]]) -> list[dict[str, float]]:
    """The figures of several measurements, turn by turn."""
    return [dict(ChainMap(*turn)) for turn in zip(*parts, strict=True)]


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
