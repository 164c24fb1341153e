"""What all replicas of a node share; made by the broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.base.clock import Clock
from penstock.replica.leader import Brokers, IsrChange

if TYPE_CHECKING:
    from penstock.partitions.flusher import Flusher
    from penstock.partitions.partition import Partition
    from penstock.serving.fetch import FetchInFlight


@dataclass(slots=True)
class ReplicaEnvironment:
    """What all replicas of a node share."""

    node_id: int
    brokers: Brokers
    clock: Clock
    flusher: Flusher
    lag_time_max_ms: Callable[[], int]
    backoff_max_ms: Callable[[], int]
    follower_reads: bool
    """Whether consumers may be sent to followers."""
    woken: dict[FetchInFlight, None] = field(default_factory=dict)
    """The fetches that may have become answerable in this turn."""
    submit_isr: Callable[[Partition, IsrChange], None] | None = None
    """Takes a wanted change of the ISR to the controller."""
