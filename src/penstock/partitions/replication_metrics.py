"""The state of replication on this node, counted at each scrape.

A partition is counted by its leader, as in Kafka, so that sums over the nodes count it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.metadata.records import NO_LEADER
from penstock.observe.metrics import Reading, Registry, Sample
from penstock.partitions.leadership import Role
from penstock.partitions.replica_manager import ReplicaManager
from penstock.partitions.replication import Replication

_GAUGES = {
    "penstock_leader_partitions": "Open partitions that this node leads.",
    "penstock_under_replicated_partitions": (
        "Partitions led here of which not all replicas are in sync."
    ),
    "penstock_under_min_isr_partitions": (
        "Partitions led here with fewer replicas in sync than min.insync.replicas."
    ),
    "penstock_offline_partitions": "Partitions with a replica here that have no leader.",
    "penstock_stopped_partitions": (
        "Replicas on this node that broke an invariant and are not served until it is restarted."
    ),
    "penstock_replica_lag_max_messages": (
        "Messages that the follower on this node which is furthest behind has still to fetch."
    ),
}
_COUNTERS = {
    "penstock_isr_shrinks_total": "Times that replicas left an in-sync set of this node.",
    "penstock_isr_expands_total": "Times that a replica joined an in-sync set of this node.",
    "penstock_isr_change_failures_total": "Changes that the controller did not accept.",
}


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
        for (name, documentation), value in zip(_GAUGES.items(), values, strict=True):
            yield Reading(name, documentation, "gauge", [Sample(name, {}, value)])
        changes = (0, 0, 0) if replication is None else replication.isr_changes.totals
        for (name, documentation), value in zip(_COUNTERS.items(), changes, strict=True):
            yield Reading(name, documentation, "counter", [Sample(name, {}, value)])
