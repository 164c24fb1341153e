"""Where partitions should lie, by the controller's own planner (`metadata/balance.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from penstock.cli.cluster.choice import choose
from penstock.cli.cluster.state import ClusterState, Key, Partition
from penstock.cli.errors import CliError
from penstock.metadata.balance import Move, NoPlan, plan
from penstock.metadata.placement import Candidate


def balanced(
    state: ClusterState, topics: Iterable[str], replication_factor: int | None
) -> dict[Key, tuple[int, ...]]:
    """New replicas that spread the chosen partitions evenly, with as little copying as it takes."""
    chosen = choose(state.partitions, topics)
    factors = {}
    if replication_factor is not None:
        factors = {topic: replication_factor for topic, _ in chosen}
    return _wanted(
        lambda: plan(
            _assignments(chosen),
            _candidates(state),
            sizes={key: state.size_of(key) for key in chosen},
            replication_factor=factors,
        )
    )


def without(state: ClusterState, node: int) -> dict[Key, tuple[int, ...]]:
    """New replicas for what lies on `node`; nothing else is touched."""
    return _wanted(
        lambda: plan(
            _assignments(state.partitions),
            _candidates(state),
            drain=[node],
            sizes={key: state.size_of(key) for key in state.partitions},
            rebalance=False,
        )
    )


def _wanted(make: Callable[[], list[Move]]) -> dict[Key, tuple[int, ...]]:
    try:
        return {(move.topic, move.partition): move.new for move in make()}
    except NoPlan as e:
        raise CliError(f"cannot plan it: {e}") from None


def _assignments(partitions: Mapping[Key, Partition]) -> dict[Key, tuple[int, ...]]:
    return {key: partition.replicas for key, partition in partitions.items()}


def _candidates(state: ClusterState) -> list[Candidate]:
    """A node that is fenced, cordoned or silent gets nothing new."""
    return [
        Candidate(
            node.id,
            node.rack,
            node.fenced or node.id not in state.disks or state.disks[node.id].cordoned,
        )
        for node in state.nodes.values()
    ]
