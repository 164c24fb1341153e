"""Which paths of the product a run took: counted, told at the end, and asserted by the suite.

Most are seen from outside, by what happens to files and what nodes log, and cost the product
nothing. `expected` says which of them so many seeds must take; `SELDOM` are for `make sim`. A path
that is no longer taken is a test that no longer tests: find out why before you take it off.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from .checks import holds

FROM_LOG_LINES = {
    "is truncated to offset": "follower truncated",
    "begins anew at offset": "follower began anew",
    "compacted %s up to offset": "compaction done",
    "in-sync replicas of %s are to change": "in-sync replicas changed",
}


class Paths:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def reach(self, path: str) -> None:
        self.counts[path] += 1

    def answered(self, error: str) -> None:
        """A client was told `error`. None is told that it may not do what it does."""
        holds("AUTHORIZATION" not in error, f"a client with all rights was answered {error}")
        if error != "NONE":
            self.reach(f"answered {error}")

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
    ("penstock.metadata.partition_change", "_led_by_eligible", "eligible replica elected"),
    ("penstock.metadata.partition_change", "_led_uncleanly", "last leader elected again"),
    ("penstock.controlling.quorum_fetches:QuorumFetches", "_piece", "metadata snapshot sent"),
    ("penstock.share.partition:SharePartition", "expire", "share lock ran out"),
    ("penstock.share.partition:SharePartition", "failed", "share write failed"),
)
"""Where, which function or method, and the path."""

EVERYWHERE = {
    "acl changed",
    "acl followed",
    "region sent",
    "segment encrypted",
    "segment recovered",
    "segment rolled",
    "stranger refused",
}
"""One seed in three runs with rights."""
NOT_TRANSACTIONAL = {
    "answered OFFSET_OUT_OF_RANGE",
    "cleaner said done",
    "compaction done",
    "compaction swapped",
    "deleted segment removed",
    "fetch session",
    "segment deleted by retention",
    "segment replaced",
    "writes lost with the power",
    "written beside",
}
"""A transactional run checks whole logs, and few of its clients write at the same time."""
CLUSTER = {
    "answered NOT_LEADER_OR_FOLLOWER",
    "cold read",
    "crashed with a new replica",
    "eligible replica elected",
    "follower truncated",
    "in-sync replicas changed",
    "log truncated",
    "metadata snapshot written",
    "replica came back",
    "replica removed",
}
"""A replica comes back to a node that had it before; it is removed with its topic, too."""
SHARES = {
    "answered INVALID_RECORD_STATE",
    "share accept",
    "share dead letter",
    "share gap",
    "share leader changed",
    "share lock ran out",
    "share record archived",
    "share reject",
    "share release",
    "share renew",
    "share state forgotten",
    "share state snapshot",
    "share states pruned",
    "share topic made again",
}
SELDOM = {
    "answered FENCED_LEADER_EPOCH",
    "answered FETCH_SESSION_ID_NOT_FOUND",
    "answered KAFKA_STORAGE_ERROR",
    "answered NOT_ENOUGH_REPLICAS",
    "answered UNKNOWN_LEADER_EPOCH",
    "cleaner died",
    "disk full",
    "follower began anew",
    "fsync failed",
    "interrupted swap finished",
    "log emptied",
    "metadata snapshot sent",
    "segment cut off",
    "thread waited for",
    "topic made again",
    "unfinished cleaning removed",
    "write beside failed",
}
"""Not in every few dozen seeds, but in `SELDOM_FROM_SEEDS`."""


SELDOM_FROM_SEEDS = 300


def expected(kind: str, nodes: int, seeds: int) -> set[str]:
    """What so many seeds of a kind of run have to take."""
    if kind == "shares":
        return SHARES  # a few seeds; the rest is asked of the others
    paths = EVERYWHERE | (set() if kind == "transactions" else NOT_TRANSACTIONAL)
    if nodes > 1:
        paths |= CLUSTER
        if seeds >= SELDOM_FROM_SEEDS and kind == "plain":
            paths |= SELDOM
    return paths
