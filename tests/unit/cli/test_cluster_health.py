"""What a cluster's state means, and what it would be after a plan."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.ids import ZERO_UUID
from penstock.cli.cluster.health import judge, loads, skew, unevenness
from penstock.cli.cluster.moves import Move, after, bytes_to_move, from_json, moves_to, to_json
from penstock.cli.cluster.state import (
    ClusterState,
    Disk,
    Node,
    Partition,
    Quorum,
    Reassignment,
    Replica,
)
from penstock.cli.errors import CliError


def cluster(*partitions: Partition, nodes: int = 3, fenced: int | None = None) -> ClusterState:
    """A state with these partitions, each of 100 bytes wherever it has a replica."""
    state = ClusterState(
        "id", {i: Node(i, "h", 9000 + i, None, i == fenced) for i in range(1, nodes + 1)}
    )
    state.partitions = {p.key: p for p in partitions}
    state.quorum = Quorum(1, 5, 40, [Replica(1, ZERO_UUID, 40, 0, 0)], [], {})
    state.disks = {
        node: Disk(1000, 500, False, {p.key: 100 for p in partitions if node in p.replicas})
        for node in state.nodes
        if node != fenced
    }
    return state


def partition(
    number: int, replicas: tuple[int, ...], isr: tuple[int, ...] | None = None
) -> Partition:
    isr = replicas if isr is None else isr
    return Partition("t", number, isr[0] if isr else None, replicas, isr)


def test_a_cluster_with_all_replicas_in_sync_is_healthy() -> None:
    health = judge(cluster(partition(0, (1, 2, 3)), partition(1, (2, 3, 1))), {})
    assert health.is_healthy
    assert health.worst == []


def test_a_node_that_cannot_be_reached_is_no_healthy_one() -> None:
    led_by_2 = partition(1, (2, 3, 1))
    state = cluster(partition(0, (1, 2, 3)), led_by_2)
    state.unreachable = [2]
    health = judge(state, {})
    assert not health.is_healthy
    assert (health.leaderless, health.leader_unreachable) == ([], [led_by_2])
    assert health.kind_of(led_by_2) == "leader unreachable"


def test_what_could_not_be_asked_is_not_healthy() -> None:
    state = cluster(partition(0, (1, 2, 3)))
    state.problems = ["cannot list the reassignments"]
    assert not judge(state, {}).is_healthy


def test_each_trouble_has_its_name_and_the_worst_comes_first() -> None:
    short = partition(0, (1, 2, 3), (1, 2))
    unwritable = partition(1, (1, 2, 3), (2,))
    gone = partition(2, (1, 2, 3), ())
    health = judge(cluster(short, unwritable, gone), {"t": 2})
    assert not health.is_healthy
    assert health.leaderless == [gone]
    assert health.under_min_isr == [unwritable, gone]
    assert health.under_replicated == [short, unwritable, gone]
    assert health.worst == [gone, unwritable, short]
    kinds = ["no leader", "under min ISR", "under-replicated"]
    assert [health.kind_of(p) for p in health.worst] == kinds


def test_min_isr_asks_for_no_more_than_there_are_replicas() -> None:
    assert judge(cluster(partition(0, (1,))), {"t": 2}).is_healthy


def test_a_replica_that_is_being_added_is_not_missed() -> None:
    state = cluster(partition(0, (1, 2, 3), (1, 2)))
    state.reassignments = {("t", 0): Reassignment("t", 0, (1, 2, 3), (3,), ())}
    assert judge(state, {}).is_healthy
    state.reassignments = {("t", 0): Reassignment("t", 0, (1, 2, 3), (2,), ())}
    assert not judge(state, {}).is_healthy


def test_without_a_quorum_or_with_a_voter_away_a_cluster_is_not_healthy() -> None:
    state = cluster(partition(0, (1, 2)))
    assert state.quorum is not None
    state.quorum.voters.append(Replica(2, ZERO_UUID, 1, 39, 60_000))
    assert judge(state, {}).voters_away == [2]
    assert not judge(state, {}).is_healthy
    state.quorum.voters[1] = Replica(2, ZERO_UUID, 0, 40, None, heard_from=False)
    assert judge(state, {}).voters_away == [2]
    state.quorum.voters[1] = Replica(2, ZERO_UUID, 0, 40, None)
    assert judge(state, {}).voters_away == [], "an old broker does not tell"
    state.quorum = None
    assert not judge(state, {}).has_quorum


def test_loads_and_skew_leave_fenced_nodes_out_of_the_mean() -> None:
    state = cluster(partition(0, (1, 3)), partition(1, (1, 2)), partition(2, (2, 1)), fenced=3)
    assert loads(state)[1] == (2, 3, 300)
    assert loads(state)[3] == (0, 1, None)
    assert skew(state).leaders == pytest.approx(2 / 1.5)
    assert skew(state).disk == pytest.approx(300 / 250)


@given(st.lists(st.integers(0, 10**6), min_size=1))
def test_unevenness_is_one_for_equal_shares_and_never_less(shares: list[int]) -> None:
    assert unevenness(shares) >= 1 - 1e-9
    assert unevenness([shares[0]] * len(shares)) == pytest.approx(1)


def test_a_plan_tells_what_moves_and_how_it_will_be() -> None:
    state = cluster(partition(0, (1, 2)), partition(1, (1, 2)))
    moves = moves_to(state, {("t", 0): (3, 2), ("t", 1): (1, 2)})
    assert moves == [Move("t", 0, (1, 2), (3, 2))]
    assert (moves[0].adding, moves[0].removing) == ([3], [1])
    assert bytes_to_move(state, moves) == 100
    then = after(state, moves)
    assert loads(then) == {1: (1, 1, 100), 2: (0, 2, 200), 3: (1, 1, 100)}
    assert loads(state)[1] == (2, 2, 200), "the state itself is as it was"


@pytest.mark.parametrize(
    ("replicas", "said"),
    [
        ((1, 9), "puts t-0 on node 9, which does not exist"),
        ((1, 1), "gives t-0 no replicas, or one of them twice"),
        ((), "gives t-0 no replicas, or one of them twice"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(replicas: tuple[int, ...], said: str) -> None:
    with pytest.raises(CliError) as refused:
        moves_to(cluster(partition(0, (1, 2))), {("t", 0): replicas})
    assert said in refused.value.sentence


def test_a_plan_about_nothing_is_refused() -> None:
    with pytest.raises(CliError) as refused:
        moves_to(cluster(partition(0, (1, 2))), {("u", 3): (1,)})
    assert "u-3, which does not exist" in refused.value.sentence


_keys = st.tuples(st.text(min_size=1), st.integers(0, 9999))


@given(st.dictionaries(_keys, st.lists(st.integers(0, 99), min_size=1, unique=True).map(tuple)))
def test_a_plan_goes_through_its_file(wanted: dict[tuple[str, int], tuple[int, ...]]) -> None:
    assert from_json(to_json(wanted), "f") == wanted


def test_the_file_has_the_form_of_kafkas_tool() -> None:
    text = to_json({("t", 1): (2, 3)})
    entry = {"topic": "t", "partition": 1, "replicas": [2, 3], "log_dirs": ["any", "any"]}
    assert json.loads(text) == {"version": 1, "partitions": [entry]}
    short = '{"version":1,"partitions":[{"topic":"t","partition":1,"replicas":[2,3]}]}'
    assert from_json(short, "f") == {("t", 1): (2, 3)}, "log_dirs may be left out"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version":2,"partitions":[]}', "nonsense"])
def test_what_is_no_plan_is_refused_by_the_files_name(text: str) -> None:
    with pytest.raises(CliError) as refused:
        from_json(text, "some.json")
    assert "some.json is not a plan" in refused.value.sentence
