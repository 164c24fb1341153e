"""The assignors: complete, balanced, sticky, near where possible, and quick."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.coordinator.consumer.assignors import (
    ASSIGNORS,
    GroupSpec,
    Subscriber,
    TargetAssignment,
    member_order,
    range_,
    uniform,
)
from penstock.coordinator.consumer.partitions import Partition

SECONDS_PER_MEMBER_MAX = 0.0005
"""A tenth of it is usual."""
TOPICS = [bytes([i]) * 16 for i in range(1, 5)]


def spec(
    members: dict[str, set[bytes]],
    counts: dict[bytes, int],
    held: TargetAssignment | None = None,
    member_racks: dict[str, str] | None = None,
    racks: dict[Partition, frozenset[str]] | None = None,
) -> GroupSpec:
    subscribers = {
        m: Subscriber(member_order(m, None), frozenset(topics), (member_racks or {}).get(m))
        for m, topics in members.items()
    }
    return GroupSpec(subscribers, counts, held or {}, racks or {})


def everything(members: dict[str, set[bytes]], counts: dict[bytes, int]) -> set[Partition]:
    wanted = set().union(*members.values()) if members else set()
    return {(t, n) for t in wanted if t in counts for n in range(counts[t])}


def check(question: GroupSpec, answer: TargetAssignment) -> None:
    """Complete, without overlap, and only to subscribers."""
    assert answer.keys() == question.members.keys()
    given_out = [p for partitions in answer.values() for p in partitions]
    assert len(given_out) == len(set(given_out))
    members = {m: set(s.topic_ids) for m, s in question.members.items()}
    assert set(given_out) == everything(members, dict(question.counts))
    for member, partitions in answer.items():
        assert {topic for topic, _ in partitions} <= members[member]


def moved(before: TargetAssignment, after: TargetAssignment) -> int:
    """Partitions that members had to give up although they are still there."""
    still = set().union(*after.values()) if after else set()
    return sum(len((before[m] - after[m]) & still) for m in before.keys() & after.keys())


counts_of = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12))
names_of = st.sets(st.sampled_from("abcdefgh"), min_size=1)
differing = st.dictionaries(
    st.sampled_from("abcdefgh"), st.sets(st.sampled_from(TOPICS)), min_size=1
)


@settings(deadline=None)
@given(st.lists(st.tuples(names_of, counts_of), min_size=1, max_size=5))
def test_uniform_with_equal_subscriptions_moves_the_least(
    history: list[tuple[set[str], dict[bytes, int]]],
) -> None:
    held: TargetAssignment = {}
    for names, counts in history:
        members = {m: set(TOPICS) for m in names}
        question = spec(members, counts, held)
        answer = uniform(question)
        check(question, answer)
        sizes = sorted(len(p) for p in answer.values())
        assert sizes[-1] - sizes[0] <= 1
        assert moved(held, answer) == least_moves(members, counts, held)
        assert uniform(spec(members, counts, answer)) == answer
        held = answer


def least_moves(
    members: dict[str, set[bytes]], counts: dict[bytes, int], held: TargetAssignment
) -> int:
    """By brute reasoning: who holds most keeps the larger shares."""
    alive = everything(members, counts)
    sizes = sorted((len(held.get(m, frozenset()) & alive) for m in members), reverse=True)
    share, odd = divmod(len(alive), len(members))
    return sum(max(0, n - share - (place < odd)) for place, n in enumerate(sizes))


@settings(deadline=None)
@given(st.lists(st.tuples(differing, counts_of), min_size=1, max_size=5))
def test_uniform_with_different_subscriptions(
    history: list[tuple[dict[str, set[bytes]], dict[bytes, int]]],
) -> None:
    held: TargetAssignment = {}
    for members, counts in history:
        question = spec(members, counts, held)
        answer = uniform(question)
        check(question, answer)
        for member, partitions in answer.items():
            for topic in {t for t, _ in partitions}:
                for other, topics in members.items():
                    if topic in topics:
                        assert len(partitions) - len(answer[other]) <= 1, (member, other)
        assert uniform(spec(members, counts, answer)) == answer
        held = answer


@settings(deadline=None)
@given(st.lists(st.tuples(differing, counts_of), min_size=1, max_size=5))
def test_range_splits_every_topic_evenly_and_like_topics_alike(
    history: list[tuple[dict[str, set[bytes]], dict[bytes, int]]],
) -> None:
    held: TargetAssignment = {}
    for members, counts in history:
        question = spec(members, counts, held)
        answer = range_(question)
        check(question, answer)
        splits: dict[tuple[int, frozenset[str]], dict[str, set[int]]] = {}
        for topic, count in counts.items():
            subscribers = frozenset(m for m, topics in members.items() if topic in topics)
            split = {m: {n for t, n in answer[m] if t == topic} for m in subscribers}
            sizes = [len(numbers) for numbers in split.values()] or [0]
            assert max(sizes) - min(sizes) <= 1
            assert splits.setdefault((count, subscribers), split) == split
        assert range_(spec(members, counts, answer)) == answer
        held = answer


def test_range_of_a_new_group_is_ranges() -> None:
    answer = range_(spec({m: {TOPICS[0]} for m in "abc"}, {TOPICS[0]: 8}))
    assert [sorted(n for _, n in answer[m]) for m in "abc"] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_a_joining_member_takes_only_its_share() -> None:
    counts = {TOPICS[0]: 12}
    two = uniform(spec({m: {TOPICS[0]} for m in "ab"}, counts))
    three = uniform(spec({m: {TOPICS[0]} for m in "abc"}, counts, two))
    assert moved(two, three) == 4
    assert three["a"] < two["a"]
    assert three["b"] < two["b"]


def test_a_leaving_member_moves_nobody_else() -> None:
    counts = {TOPICS[0]: 12}
    three = uniform(spec({m: {TOPICS[0]} for m in "abc"}, counts))
    two = uniform(spec({m: {TOPICS[0]} for m in "ac"}, counts, three))
    assert moved(three, two) == 0


@pytest.mark.parametrize("name", ["uniform", "range"])
def test_free_partitions_go_to_members_beside_them(name: str) -> None:
    topic = TOPICS[0]
    racks = {(topic, n): frozenset({"r1" if n % 2 else "r2"}) for n in range(8)}
    question = spec({m: {topic} for m in "ab"}, {topic: 8}, None, {"a": "r1", "b": "r2"}, racks)
    answer = ASSIGNORS[name](question)
    assert answer["a"] == {(topic, n) for n in (1, 3, 5, 7)}
    assert answer["b"] == {(topic, n) for n in (0, 2, 4, 6)}


def test_racks_break_ties_between_different_subscriptions() -> None:
    one, two = TOPICS[:2]
    racks = {(one, n): frozenset({"r1" if n % 2 else "r2"}) for n in range(8)}
    question = spec(
        {"a": {one}, "b": {one}, "c": {two}}, {one: 8, two: 1}, None, {"a": "r1", "b": "r2"}, racks
    )
    answer = uniform(question)
    assert answer["a"] == {(one, n) for n in (1, 3, 5, 7)}


def test_nothing_is_moved_for_a_rack() -> None:
    topic = TOPICS[0]
    held = {"a": frozenset({(topic, 0)}), "b": frozenset({(topic, 1)})}
    racks = {(topic, 0): frozenset({"r2"}), (topic, 1): frozenset({"r1"})}
    for assignor in ASSIGNORS.values():
        question = spec({m: {topic} for m in "ab"}, {topic: 2}, held, {"a": "r1", "b": "r2"}, racks)
        assert assignor(question) == held


def test_order_is_by_instance_id_then_member_id() -> None:
    orders = [member_order("z", "i1"), member_order("a", "i2"), member_order("a", None)]
    assert all(earlier < later for earlier, later in pairwise(orders))


@pytest.mark.parametrize("name", ["uniform", "range"])
@pytest.mark.parametrize("different", [False, True])
@pytest.mark.parametrize(("members", "topics"), [(100, 10), (1_000, 100)])
def test_large_groups_are_assigned_quickly(
    name: str, different: bool, members: int, topics: int
) -> None:
    ids = [n.to_bytes(16, "big") for n in range(topics)]
    counts = dict.fromkeys(ids, 100)
    wanted = {
        f"m{i:04}": {t for j, t in enumerate(ids) if not different or (i + j) % 3} | {ids[0]}
        for i in range(members)
    }
    held = ASSIGNORS[name](spec(wanted, counts))
    wanted["newcomer"] = set(ids)
    took = []
    for _ in range(3):  # the best of them: another may have to collect the garbage of a whole suite
        started = time.thread_time()
        question = spec(wanted, counts, held)
        answer = ASSIGNORS[name](question)
        took.append(time.thread_time() - started)
    check(question, answer)
    assert min(took) < SECONDS_PER_MEMBER_MAX * members, f"{min(took):.3f} s"
