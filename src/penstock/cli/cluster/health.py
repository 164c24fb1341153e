"""What a cluster's state means: which partitions are in danger, and how evenly load lies.

Pure: a state goes in, judgements come out. A partition without a leader can neither be read nor
written, nor can one whose leader does not answer; one below its `min.insync.replicas` refuses what
is published with acks=all; one that is under-replicated works, but has lost some of its safety.
Replicas that a reassignment is adding are not missed. Skew is the largest share divided by the
mean, over the nodes that are not fenced: 1 is even, 2 means that one node has twice its part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.cli.cluster.state import ClusterState, Partition, Quorum, Replica

SILENT_MS_MAX = 10_000
"""A replica of the metadata that has not fetched for so long is away; others fetch every half
second.
"""


class Health(NamedTuple):
    leaderless: list[Partition]
    leader_unreachable: list[Partition]
    """Led by a node that does not answer here; after the loss of the quorum it may be gone."""
    under_min_isr: list[Partition]
    under_replicated: list[Partition]
    voters_away: list[int]
    has_quorum: bool
    failed_folders: list[tuple[int, str]]
    """Nodes, and folders there that serve nobody any more."""
    unreachable: list[int]
    """Nodes that the controller hears from, but we do not."""
    is_known: bool
    """Whether everything that was asked was answered."""

    @property
    def is_healthy(self) -> bool:
        return (self.has_quorum and self.is_known) and not (
            self.leaderless
            or self.leader_unreachable
            or self.under_min_isr
            or self.under_replicated
            or self.voters_away
            or self.failed_folders
            or self.unreachable
        )

    @property
    def worst(self) -> list[Partition]:
        """Every partition that is not well, the worst kind first, each once."""
        kinds = (
            self.leaderless,
            self.leader_unreachable,
            self.under_min_isr,
            self.under_replicated,
        )
        return list({p.key: p for kind in kinds for p in kind}.values())

    def kind_of(self, partition: Partition) -> str:
        if partition in self.leaderless:
            return "no leader"
        if partition in self.leader_unreachable:
            return "leader unreachable"
        return "under min ISR" if partition in self.under_min_isr else "under-replicated"


def judge(state: ClusterState, min_isr: Mapping[str, int]) -> Health:
    """The health of a cluster whose topics want so many replicas in sync."""
    partitions = state.partitions.values()
    return Health(
        [p for p in partitions if p.leader is None],
        [p for p in partitions if p.leader in state.unreachable],
        [p for p in partitions if len(p.isr) < min(min_isr.get(p.topic, 1), len(p.replicas))],
        under_replicated(state),
        _voters_away(state.quorum),
        state.quorum is not None and state.quorum.leader >= 0,
        [(node, folder) for node, disk in state.disks.items() for folder in disk.failed],
        state.unreachable,
        not state.problems,
    )


def under_replicated(state: ClusterState) -> list[Partition]:
    """Partitions of which a replica that was there is not in sync."""
    found = []
    for partition in state.partitions.values():
        moving = state.reassignments.get(partition.key)
        adding = set(moving.adding) if moving else set()
        if not set(partition.replicas) - adding <= set(partition.isr):
            found.append(partition)
    return found


def is_away(replica: Replica) -> bool:
    """Whether the quorum's leader does not hear from the replica."""
    return not replica.heard_from or (replica.silent_ms or 0) > SILENT_MS_MAX


def _voters_away(quorum: Quorum | None) -> list[int]:
    return [] if quorum is None else [voter.id for voter in quorum.voters if is_away(voter)]


class Load(NamedTuple):
    """What one node carries; the bytes are None when it could not be asked."""

    leaders: int
    replicas: int
    disk_bytes: int | None


def loads(state: ClusterState) -> dict[int, Load]:
    """The load of every registered node."""
    leaders = dict.fromkeys(state.nodes, 0)
    replicas = dict.fromkeys(state.nodes, 0)
    for partition in state.partitions.values():
        for node in partition.replicas:
            replicas[node] = replicas.get(node, 0) + 1
        if partition.leader is not None:
            leaders[partition.leader] = leaders.get(partition.leader, 0) + 1
    return {
        node: Load(
            leaders[node],
            replicas[node],
            state.disks[node].used_bytes if node in state.disks else None,
        )
        for node in state.nodes
    }


class Skew(NamedTuple):
    leaders: float
    replicas: float
    disk: float


def skew(state: ClusterState) -> Skew:
    """How unevenly the load lies over the nodes that are not fenced."""
    of = loads(state)
    live = [of[node.id] for node in state.nodes.values() if not node.fenced]
    return Skew(
        unevenness(load.leaders for load in live),
        unevenness(load.replicas for load in live),
        unevenness(load.disk_bytes for load in live if load.disk_bytes is not None),
    )


def unevenness(shares: Iterable[int]) -> float:
    """The largest share divided by the mean; 1 where there is nothing to share."""
    values = list(shares)
    total = sum(values)
    return max(values) * len(values) / total if total else 1.0
