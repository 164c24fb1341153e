"""How much memory a node takes while something is done to it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from .node import NodeProcess
from .process import BrokerProcess

MEGABYTE = 1 << 20


@contextlib.contextmanager
def growth_below(node: BrokerProcess, megabytes: int) -> Iterator[None]:
    """The node's memory may not grow by more, at any moment that we look."""
    before = node.rss_bytes()
    highest = [before]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            highest[0] = max(highest[0], node.rss_bytes())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
    grown = (highest[0] - before) / MEGABYTE
    if not isinstance(node, NodeProcess):
        return  # a JVM's heap grows by its own rules
    assert grown < megabytes, f"memory grew by {grown:.0f} MB"
