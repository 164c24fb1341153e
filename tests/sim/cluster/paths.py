"""Which paths of the product a run took: counted, told at the end, and asserted by the suite.

Most are seen from outside, by what happens to files and what nodes log, and cost the product
nothing. `OFTEN` has those that a few dozen seeds must meet, by the kind of run; `SELDOM` those that
`make sim` must. A path that is no longer taken is a test that no longer tests: find out why before
you take it off the list.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable
from typing import Any

FROM_LOG_LINES = {
    "is cut back to offset": "follower truncated",
    "begins anew at offset": "follower began anew",
    "compacted %s up to offset": "compaction done",
    "in-sync replicas of %s are to change": "in-sync replicas changed",
}


class Paths:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def reach(self, path: str) -> None:
        self.counts[path] += 1

    def log_line(self, message: str) -> None:
        for text, path in FROM_LOG_LINES.items():
            if text in message:
                self.reach(path)

    def watch(self) -> None:
        """Have functions that are never compiled tell when they are called."""
        for place, name, path in WATCHED:
            module, _, owner = place.partition(":")
            found: Any = importlib.import_module(module)
            target = getattr(found, owner) if owner else found
            setattr(target, name, self._telling(getattr(target, name), path))

    def _telling(self, function: Callable[..., Any], path: str) -> Callable[..., Any]:
        def told(*args: Any, **more: Any) -> Any:
            self.reach(path)
            return function(*args, **more)

        return told


WATCHED = (
    ("penstock.base.file_region:FileRegion", "read", "region sent"),
    ("penstock.log.truncation", "truncate_to", "log truncated"),
    ("penstock.log.truncation", "truncate_fully", "log emptied"),
    ("penstock.log.recovery:SegmentRecovery", "run", "segment recovered"),
    ("penstock.controlling.quorum_fetches:QuorumFetches", "_piece", "metadata snapshot sent"),
)
"""Where, which function or method, and the path."""

EVERYWHERE = {
    "region sent",
    "segment recovered",
    "segment rolled",
    "written beside",
    "writes lost with the power",
}
NOT_TRANSACTIONAL = {
    "cleaner said done",
    "compaction done",
    "compaction swapped",
    "deleted segment removed",
    "segment deleted by retention",
    "segment replaced",
}
"""A transactional run checks whole logs."""
CLUSTER = {
    "cold read",
    "follower truncated",
    "in-sync replicas changed",
    "log truncated",
    "metadata snapshot written",
}
SELDOM = {
    "cleaner died",
    "disk full",
    "follower began anew",
    "fsync failed",
    "interrupted swap finished",
    "log emptied",
    "metadata snapshot sent",
    "segment cut off",
    "unfinished cleaning removed",
    "write beside failed",
}
"""Not in every few dozen seeds."""


def missing(taken: Counter[str], which: str | None, transactions: bool, nodes: int) -> list[str]:
    """What should have been taken and was not: `often`, `all`, or None for whatever comes."""
    if which is None:
        return []
    wanted = EVERYWHERE | (set() if transactions else NOT_TRANSACTIONAL)
    if nodes > 1:
        wanted |= CLUSTER
    if which == "all" and nodes > 1 and not transactions:
        wanted |= SELDOM
    return sorted(wanted - taken.keys())
