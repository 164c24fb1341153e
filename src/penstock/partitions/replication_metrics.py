"""The state of replication on this node, counted at each scrape.

A partition is counted by its leader, as in Kafka, so that sums over the nodes count it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.metadata.records import NO_LEADER
from penstock.observe.metrics import Reading, Registry
from penstock.observe.table import (
    ISR_CHANGE_FAILURES,
    ISR_EXPANDS,
    ISR_SHRINKS,
    LEADER_PARTITIONS,
    OFFLINE_PARTITIONS,
    REPLICA_LAG_MAX_MESSAGES,
    STOPPED_PARTITIONS,
    UNDER_MIN_ISR_PARTITIONS,
    UNDER_REPLICATED_PARTITIONS,
)
from penstock.partitions.leadership import Role
from penstock.partitions.replica_manager import ReplicaManager
from penstock.partitions.replication import Replication

_GAUGES = (
    LEADER_PARTITIONS,
    UNDER_REPLICATED_PARTITIONS,
    UNDER_MIN_ISR_PARTITIONS,
    OFFLINE_PARTITIONS,
    STOPPED_PARTITIONS,
    REPLICA_LAG_MAX_MESSAGES,
)
_COUNTERS = (ISR_SHRINKS, ISR_EXPANDS, ISR_CHANGE_FAILURES)


class ReplicationMetrics:
    def __init__(
        self,
        registry: Registry,
        replicas: ReplicaManager,
        replication: Callable[[], Replication | None],
    ) -> None:
        """`replication` gives None until the node has joined its cluster."""
        self._replicas = replicas
        self._replication = replication
        registry.add_source(self._collect)

    def _collect(self) -> Iterator[Reading]:
        led = under_replicated = under_min_isr = offline = 0
        for partition in self._replicas.open_partitions():
            if partition.role is Role.LEADER:
                led += 1
                leader = partition.leader
                under_replicated += leader is not None and len(leader.isr) < len(leader.replicas)
                under_min_isr += partition.under_min_isr
            elif partition.leader_id == NO_LEADER:
                offline += 1
        replication = self._replication()
        max_lag = 0 if replication is None else replication.max_lag
        stopped = len(self._replicas.stopped)
        values = (led, under_replicated, under_min_isr, offline, stopped, max_lag)
        for metric, value in zip(_GAUGES, values, strict=True):
            yield metric.one(value)
        changes = (0, 0, 0) if replication is None else replication.isr_changes.totals
        for metric, value in zip(_COUNTERS, changes, strict=True):
            yield metric.one(value)
