from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import ApiError, ErrorCode
from penstock.metadata.placement import Candidate, no_load, place

racks = st.sampled_from([None, "a", "b", "c"])
clusters = st.lists(st.tuples(racks, st.booleans()), min_size=1, max_size=12).map(
    lambda rows: [Candidate(i, rack, fenced) for i, (rack, fenced) in enumerate(rows)]
)


def rack_of(candidate: Candidate) -> object:
    return candidate.rack if candidate.rack is not None else candidate.id


@given(clusters, st.integers(0, 40), st.integers(1, 5), st.integers(0, 100))
def test_the_rules_of_placement(
    cluster: list[Candidate], partitions: int, factor: int, start: int
) -> None:
    alive = [c for c in cluster if not c.fenced]
    if not alive or factor > len(cluster):
        with pytest.raises(ApiError) as e:
            list(place(cluster, partitions, factor, start))
        assert e.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        return
    by_id = {c.id: c for c in cluster}
    assignments = list(place(cluster, partitions, factor, start))
    assert len(assignments) == partitions
    for replicas in assignments:
        assert len(set(replicas)) == len(replicas) == factor
        assert not by_id[replicas[0]].fenced
        assert sum(by_id[b].fenced for b in replicas) == max(0, factor - len(alive))
        if factor <= len(alive):
            assert_spread_over_racks([by_id[b] for b in replicas], alive)
    leaders = Counter({c.id: 0 for c in alive})
    leaders.update(replicas[0] for replicas in assignments)
    assert max(leaders.values()) - min(leaders.values()) <= 1


def assert_spread_over_racks(chosen: list[Candidate], alive: list[Candidate]) -> None:
    """A rack has two more than another only if the other has no broker left."""
    size = Counter(rack_of(c) for c in alive)
    used = Counter(rack_of(c) for c in chosen)
    for rack, members in size.items():
        if used[rack] < members:
            assert max(used.values()) <= used[rack] + 1


@given(st.integers(1, 9), st.integers(1, 60), st.integers(1, 3), st.integers(0, 9))
def test_without_racks_replicas_are_balanced(
    brokers: int, partitions: int, factor: int, start: int
) -> None:
    factor = min(factor, brokers)
    assignments = list(place([Candidate(i) for i in range(brokers)], partitions, factor, start))
    load = Counter(dict.fromkeys(range(brokers), 0))
    load.update(b for replicas in assignments for b in replicas)
    assert max(load.values()) - min(load.values()) <= 2


def test_followers_of_one_leader_are_spread() -> None:
    assignments = list(place([Candidate(i) for i in range(6)], 60, 2))
    followers = {replicas[1] for replicas in assignments if replicas[0] == 0}
    assert len(followers) > 1


@settings(deadline=None)
@given(clusters, st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=30))
def test_small_topics_together_are_balanced(
    cluster: list[Candidate], topics: list[tuple[int, int]]
) -> None:
    alive = [c for c in cluster if not c.fenced]
    load = no_load()
    made = 0
    for partitions, factor in topics:
        if alive and factor <= len(alive):
            list(place(cluster, partitions, factor, made, load))
            made += partitions
    if made:
        leaders = [load.leaders[c.id] for c in alive]
        assert sum(leaders) == made
        # A topic's own balance comes first: it may put one more on a broker than the cluster's.
        assert max(leaders) - min(leaders) <= 2


def test_a_topic_goes_on_where_it_stopped() -> None:
    brokers = [Candidate(i) for i in range(4)]
    added = list(place(brokers, 2, 2, 0, None, existing=[(0, 1), (1, 2)]))
    assert {replicas[0] for replicas in added} == {2, 3}
    assert added[0][1] != 1


def test_a_new_broker_gets_the_new_topics_first() -> None:
    load = no_load()
    for topic in range(10):
        list(place([Candidate(0), Candidate(1)], 1, 1, topic, load))
    for topic in range(5):
        placed = list(place([Candidate(0), Candidate(1), Candidate(2)], 1, 1, topic, load))
        assert placed == [[2]]
