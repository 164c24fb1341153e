"""What all replicas of a node share; made where the node is put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.clock import Clock
from penstock.base.errors import StorageError
from penstock.partitions.flusher import Flusher
from penstock.partitions.turns import Turns
from penstock.replica.leader import Brokers, IsrChange

if TYPE_CHECKING:
    from penstock.partitions.partition import Partition


def _ignore(*_: object) -> None:
    """A callback that is not set yet."""


@dataclass(slots=True)
class ReplicaEnvironment:
    """What all replicas of a node share."""

    node_id: int
    brokers: Brokers
    clock: Clock
    turns: Turns
    flusher: Flusher
    lag_time_max_ms: Callable[[], int]
    backoff_max_ms: Callable[[], int]
    follower_reads: bool
    """Whether consumers may be sent to followers."""
    submit_isr: Callable[[Partition, IsrChange], None] = _ignore
    """Sends a wanted change of the ISR to the controller."""
    on_append_failed: Callable[[Partition, StorageError], None] = _ignore
    """The disk has refused what producers and coordinators had staged."""
    on_log_failed: Callable[[Partition], None] = _ignore
    """The log of a replica refuses writes for good, as after a failed fsync; it can be read."""
    on_stopped: Callable[[Partition], None] = _ignore
    """A replica has been stopped: no request may find it any more."""
