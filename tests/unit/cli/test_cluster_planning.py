"""Which nodes a plan may use, which partitions it is about, and which levels all nodes support."""

from __future__ import annotations

import pytest

from penstock.cli.cluster.choice import choose
from penstock.cli.cluster.planning import balanced, without
from penstock.cli.cluster.state import ClusterState, Disk, Feature, Node, Partition, read_features
from penstock.cli.errors import CliError
from penstock.wire.messages.api_versions import (
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)


def cluster(nodes: int, *partitions: tuple[int, ...]) -> ClusterState:
    state = ClusterState("id", {i: Node(i, "h", i, None, False) for i in range(1, nodes + 1)})
    made = [Partition("t", i, ids[0], ids, ids) for i, ids in enumerate(partitions)]
    state.partitions = {p.key: p for p in made}
    state.disks = {node: Disk(1, 1, False, {}) for node in state.nodes}
    return state


def used(wanted: dict[tuple[str, int], tuple[int, ...]]) -> set[int]:
    return {node for replicas in wanted.values() for node in replicas}


def test_a_new_node_gets_its_share() -> None:
    state = cluster(3, (1, 2), (2, 1), (1, 2))
    assert 3 in used(balanced(state, [], None))
    assert balanced(cluster(2, (1, 2), (2, 1)), [], None) == {}, "what is even stays"


@pytest.mark.parametrize("kind", ["fenced", "cordoned", "silent"])
def test_nothing_new_goes_where_nothing_should(kind: str) -> None:
    state = cluster(3, (1, 2), (2, 1), (1, 2))
    if kind == "fenced":
        state.nodes[3] = state.nodes[3]._replace(fenced=True)
    elif kind == "cordoned":
        state.disks[3] = state.disks[3]._replace(cordoned=True)
    else:
        del state.disks[3]
    assert 3 not in used(balanced(state, [], None))


def test_only_the_named_topics_are_touched() -> None:
    state = cluster(3, (1,), (1,), (1,))
    assert set(balanced(state, ["t:0,1"], None)) <= {("t", 0), ("t", 1)}
    grown = balanced(state, ["t"], 2)
    assert {len(replicas) for replicas in grown.values()} == {2}


def test_a_drained_node_holds_nothing_and_the_rest_stays() -> None:
    wanted = without(cluster(4, (1, 2), (3, 1), (2, 3)), 3)
    assert set(wanted) == {("t", 1), ("t", 2)}
    assert 3 not in used(wanted)


def test_what_cannot_be_planned_is_a_sentence() -> None:
    with pytest.raises(CliError) as refused:
        without(cluster(2, (1, 2)), 2)
    assert "cannot plan it: t-0 is to have 2 replica(s), and only 1" in refused.value.sentence


def test_choosing_what_does_not_exist() -> None:
    partitions = cluster(1, (1,)).partitions
    assert choose(partitions, []) == partitions
    with pytest.raises(CliError) as refused:
        choose(partitions, ["tt"])
    assert "topic 'tt' does not exist" in refused.value.sentence
    with pytest.raises(CliError) as refused:
        choose(partitions, ["t:4"])
    assert "topic 't' has no partition 4" in refused.value.sentence


def test_the_level_that_every_node_supports() -> None:
    def node(lowest: int, highest: int, finalized: int, epoch: int) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            supported_features=[
                SupportedFeatureKey(name="f", min_version=lowest, max_version=highest)
            ],
            finalized_features=[FinalizedFeatureKey(name="f", max_version_level=finalized)],
            finalized_features_epoch=epoch,
        )

    old, new = node(1, 3, 2, 10), node(2, 5, 3, 11)
    assert read_features([old, new]) == {"f": Feature("f", 3, 2, 3)}
    without_it = ApiVersionsResponse()
    assert read_features([node(0, 5, 0, 11), without_it])["f"].supported_max == 0
    in_force = read_features([new, without_it])["f"]
    assert in_force == Feature("f", 3, None, None), "no highest level below the one in force"
    assert read_features([]) == {}
