"""The inputs of the transaction coordinator: its settings and its environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Each field is named after its broker setting and has its default; times are in ms."""

    transactional_id_expiration_ms: int = 604_800_000
    transaction_max_timeout_ms: int = 900_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000


@dataclass(slots=True)
class EndCounts:
    """How transactions ended, for metrics; all shards of a node count together."""

    committed: int = 0
    aborted: int = 0
    timed_out: int = 0
    """Those of the aborted ones whose time was up."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What the transactions of a shard share."""

    config: TransactionConfig
    coordinator_epoch: int
    """The leader epoch of the shard's partition: markers carry it."""
    take_producer_id: Callable[[], int | None]
    """A producer id that nobody has had; None when there is none at the moment."""
    transaction_version: Callable[[], int]
    """The level of the feature `transaction.version` that the cluster has now."""
    counts: EndCounts = field(default_factory=EndCounts)
