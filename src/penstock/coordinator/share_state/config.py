"""The inputs of the share coordinator: its settings and its environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.base.ids import Uuid


@dataclass(frozen=True, slots=True)
class ShareStateConfig:
    """Each field stands for a broker setting and has its default."""

    updates_per_snapshot: int = 500
    """share.coordinator.snapshot.update.records.per.snapshot"""
    cold_interval_ms: int = 300_000
    """share.coordinator.cold.partition.snapshot.interval.ms"""


@dataclass(slots=True)
class WriteCounts:
    """For metrics; all shards of a node count together."""

    writes: int = 0
    """Changes that were written, those of reads that had to write an epoch among them."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What the states of a shard share."""

    config: ShareStateConfig
    partitions_of: Callable[[Uuid], int]
    """How many partitions a topic has; 0 if there is no such topic."""
    counts: WriteCounts = field(default_factory=WriteCounts)
