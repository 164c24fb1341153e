from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.metadata.balance import BYTES_SKEW_MAX, Key, Move, NoPlan, plan
from penstock.metadata.placement import Candidate, place

racks = st.sampled_from([None, "a", "b", "c"])


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Candidate], dict[Key, tuple[int, ...]], dict[Key, int]]:
    """Brokers, and partitions that lie on them somehow, also on one that is gone."""
    count = draw(st.integers(1, 7))
    brokers = [Candidate(i, draw(racks), draw(st.integers(0, 5)) == 0) for i in range(count)]
    ids = st.permutations([*range(count), 99])
    assignments = {}
    for index in range(draw(st.integers(0, 25))):
        factor = draw(st.integers(1, min(3, count)))
        assignments["t", index] = tuple(draw(ids)[:factor])
    sizes = {key: draw(st.integers(0, 1000)) for key in assignments}
    return brokers, assignments, sizes


def after(assignments: dict[Key, tuple[int, ...]], moves: list[Move]) -> dict[Key, tuple[int, ...]]:
    changed = {(m.topic, m.partition): m for m in moves}
    for key, move in changed.items():
        assert move.old == assignments[key] != move.new
    return {key: changed[key].new if key in changed else old for key, old in assignments.items()}


def crowding(replicas: tuple[int, ...], brokers: list[Candidate]) -> int:
    rack = {c.id: c.rack if c.rack is not None else c.id for c in brokers}
    counts = Counter(rack.get(b, b) for b in replicas)
    return sum(n * (n - 1) // 2 for n in counts.values())


@settings(max_examples=60, deadline=None)
@given(clusters(), st.booleans(), st.data())
def test_a_plan_keeps_the_rules(cluster, rebalance: bool, data: st.DataObject) -> None:
    brokers, assignments, sizes = cluster
    drain = frozenset(data.draw(st.sets(st.integers(0, 6), max_size=2)))
    factor = data.draw(st.none() | st.integers(1, 3))
    wanted = None if factor is None else {"t": factor}
    try:
        moves = plan(
            assignments,
            brokers,
            drain=drain,
            sizes=sizes,
            replication_factor=wanted,
            rebalance=rebalance,
        )
    except NoPlan:
        usable = [c for c in brokers if c.id not in drain and not c.fenced]
        assert len(usable) < max([factor or 0, *map(len, assignments.values())])
        return
    staying = {c.id for c in brokers} - drain
    fenced = {c.id for c in brokers if c.fenced}
    for key, replicas in after(assignments, moves).items():
        assert len(set(replicas)) == len(replicas) == (factor or len(assignments[key]))
        assert set(replicas) <= staying
        assert not (set(replicas) - set(assignments[key])) & fenced
    if not rebalance:
        assert not plan(after(assignments, moves), brokers, drain=drain, rebalance=False)


@settings(max_examples=60, deadline=None)
@given(clusters())
def test_racks_do_not_get_worse(cluster) -> None:
    brokers, assignments, sizes = cluster
    try:
        moves = plan(assignments, brokers, sizes=sizes)
    except NoPlan:
        return
    known = {c.id for c in brokers}
    for move in moves:
        if set(move.old) <= known:
            assert crowding(move.new, brokers) <= crowding(move.old, brokers)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 8), st.integers(1, 40), st.integers(1, 3), st.data())
def test_without_racks_everything_is_level(
    count: int, partitions: int, factor: int, data: st.DataObject
) -> None:
    factor = min(factor, count)
    brokers = [Candidate(i) for i in range(count)]
    ids = st.permutations(range(count))
    assignments = {("t", i): tuple(data.draw(ids)[:factor]) for i in range(partitions)}
    result = after(assignments, plan(assignments, brokers))
    held = Counter(dict.fromkeys(range(count), 0))
    held.update(b for replicas in result.values() for b in replicas)
    assert max(held.values()) - min(held.values()) <= 1
    moved = sum(len(set(result[key]) - set(old)) for key, old in assignments.items())
    before = Counter(dict.fromkeys(range(count), 0))
    before.update(b for replicas in assignments.values() for b in replicas)
    # No more moves than it takes to fill up those below the mean and relieve those above it.
    least = partitions * factor // count
    most = -(-partitions * factor // count)
    short = sum(max(0, least - n) for n in before.values())
    over = sum(max(0, n - most) for n in before.values())
    assert moved <= max(short, over) + (factor > 1) * partitions
    preferred = Counter(replicas[0] for replicas in result.values())
    if factor == count:
        assert max(preferred.values()) - min([preferred[b] for b in range(count)]) <= 1


def test_a_new_broker_gets_its_share_and_no_more_moves() -> None:
    old = [Candidate(i) for i in range(3)]
    assignments: dict[Key, tuple[int, ...]] = {
        ("t", i): tuple(replicas) for i, replicas in enumerate(place(old, 120, 3))
    }
    assert plan(assignments, old) == []
    moves = plan(assignments, [*old, Candidate(3)])
    assert sum(len(move.adding) for move in moves) == 90
    assert {b for move in moves for b in move.adding} == {3}
    preferred = Counter(replicas[0] for replicas in after(assignments, moves).values())
    assert set(preferred.values()) == {30}


def test_a_drained_broker_is_emptied_and_nothing_else_moves() -> None:
    brokers = [Candidate(i) for i in range(4)]
    assignments: dict[Key, tuple[int, ...]] = {
        ("t", i): tuple(replicas) for i, replicas in enumerate(place(brokers, 100, 2))
    }
    moves = plan(assignments, brokers, drain={2}, rebalance=False)
    for move in moves:
        assert 2 in move.old
        assert len(move.adding) == 1
    assert all(2 not in replicas for replicas in after(assignments, moves).values())
    with pytest.raises(NoPlan, match=r"t-0 is to have 2 replica.s., and only 1 broker"):
        plan(assignments, brokers, drain={1, 2, 3})


def test_large_partitions_change_places_with_small_ones() -> None:
    brokers = [Candidate(0), Candidate(1)]
    assignments: dict[Key, tuple[int, ...]] = {("t", i): (i // 8,) for i in range(16)}
    sizes = {("t", i): 100 if i < 8 else 1 for i in range(16)}
    moves = plan(assignments, brokers, sizes=sizes)
    held = Counter(dict.fromkeys((0, 1), 0))
    for key, replicas in after(assignments, moves).items():
        held[replicas[0]] += sizes[key]
    assert held[0] == held[1]
    assert len(moves) == 8


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 10_000), min_size=4, max_size=80), st.integers(2, 6))
def test_bytes_do_not_get_worse(values: list[int], count: int) -> None:
    brokers = [Candidate(i) for i in range(count)]
    assignments: dict[Key, tuple[int, ...]] = {("t", i): (i % count,) for i in range(len(values))}
    sizes = {("t", i): size for i, size in enumerate(values)}

    def gap(of: dict[Key, tuple[int, ...]]) -> int:
        held = Counter(dict.fromkeys(range(count), 0))
        for key, replicas in of.items():
            held[replicas[0]] += sizes[key]
        return max(held.values()) - min(held.values())

    result = after(assignments, plan(assignments, brokers, sizes=sizes))
    assert gap(result) <= max(gap(assignments), BYTES_SKEW_MAX * sum(values) / count)


def test_the_order_of_a_plan_is_that_of_the_partitions() -> None:
    brokers = [Candidate(i) for i in range(3)]
    assignments: dict[Key, tuple[int, ...]] = {("t", i): (0,) for i in range(9)}
    moves = plan(assignments, brokers)
    assert all(a.partition < b.partition for a, b in pairwise(moves))
    assert len(moves) == 6
