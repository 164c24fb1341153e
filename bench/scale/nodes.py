"""Nodes under measurement: started, stopped and killed against the clock; processor time, memory.

A node with a hundred thousand partitions may take longer than a test would wait, so the limits here
are wider than those of the tests' processes. Series of metrics by topic and partition are switched
off, as the settings advise where those are many.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.support.node import NodeProcess

from penstock.kafka.client import Address

from .calls import ScaleError

START_S_MAX = 600.0
STOP_S_MAX = 600.0
POLL_S = 0.01
SETTLE_SHARE = 0.3
"""How long a node is left alone before a look at its idling, as a share of the look."""
MB = 1_000_000
SPARE_FILES = 200
"""Of a process of the load, besides its connections."""
SETTINGS = {
    "penstock.metrics.per.topic": "false",
    "penstock.metrics.per.partition": "false",
}


class Process(Protocol):
    """What is read of a node's process."""

    def cpu_seconds(self) -> float: ...

    def rss_bytes(self) -> int: ...


@contextmanager
def single_node(
    root: Path, settings: Mapping[str, str] | None = None, *, files: int | None = None
) -> Iterator[NodeProcess]:
    """A node that is gone afterwards; with `files` it may open so many."""
    wanted = SETTINGS | dict(settings or {})
    node = NodeProcess(root, wanted) if files is None else LimitedNode(root, wanted, files)
    try:
        start(node)
        yield node
    finally:
        node.kill()


class LimitedNode(NodeProcess):
    """A node that may open so many files and no more."""

    def __init__(self, root: Path, settings: Mapping[str, str], files: int) -> None:
        super().__init__(root, settings)
        self._files = files

    def command(self) -> list[str]:
        return ["prlimit", f"--nofile={self._files}", *super().command()]


def address(node: NodeProcess) -> Address:
    return node.host, node.port


def start(node: NodeProcess) -> float:
    """Starts a node; the seconds until it serves."""
    began = time.perf_counter()
    node.launch()
    until(lambda: node.is_ready() or not node.running, START_S_MAX, "the node to be ready", POLL_S)
    if not node.running:
        raise ScaleError(f"the node has died while starting: {node.log_tail()}")
    return time.perf_counter() - began


def stop(node: NodeProcess) -> float:
    """Stops a node cleanly; the seconds it took."""
    began = time.perf_counter()
    node.terminate()
    until(lambda: not node.running, STOP_S_MAX, "the node to stop", POLL_S)
    return time.perf_counter() - began


def until(check: Callable[[], object], seconds: float, what: str, every: float) -> float:
    """Polls until `check` is true; the seconds it took."""
    began = time.perf_counter()
    while not check():
        if time.perf_counter() - began > seconds:
            raise ScaleError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(every)
    return time.perf_counter() - began


def busy_cores(processes: Iterable[Process], seconds: float) -> float:
    """Cores that the processes keep busy together, while nothing is asked of them."""
    measured = list(processes)
    time.sleep(SETTLE_SHARE * seconds)
    before = sum(process.cpu_seconds() for process in measured)
    time.sleep(seconds)
    return round((sum(process.cpu_seconds() for process in measured) - before) / seconds, 4)


def rss_mb(process: Process) -> float:
    return round(process.rss_bytes() / MB, 1)


def metric(node: NodeProcess, name: str) -> float | None:
    """What a node shows on `/metrics`; None while it is too busy to answer."""
    try:
        return node.metric(name)
    except OSError:
        return None


def allow_files() -> int:
    """Raises this process's limit of open files, and that of what it starts, as far as it may be;
    how many that is.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = int(Path("/proc/sys/fs/nr_open").read_text())
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
