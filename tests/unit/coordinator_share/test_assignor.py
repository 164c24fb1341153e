"""The assignor of share groups: enough owners for every partition, even, and sticky."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.ids import Uuid
from penstock.coordinator.consumer.partitions import Partition
from penstock.coordinator.share_group.assignor import simple

A, B, C = (bytes([n]) * 16 for n in (1, 2, 3))
counts_of = st.fixed_dictionaries({}, optional={t: st.integers(0, 6) for t in (A, B, C)})
members_of = st.dictionaries(
    st.sampled_from([f"m{n}" for n in range(9)]), st.frozensets(st.sampled_from([A, B, C]))
)
Target = dict[str, frozenset[Partition]]


def numbers(counts: dict[Uuid, int]) -> dict[Uuid, frozenset[int]]:
    return {topic: frozenset(range(count)) for topic, count in counts.items()}


def alike(count: int) -> dict[str, frozenset[Uuid]]:
    return {f"m{n}": frozenset({A}) for n in range(count)}


def owners(target: Target) -> Counter[Partition]:
    return Counter(partition for partitions in target.values() for partition in partitions)


def loads(target: Target) -> list[int]:
    return sorted(len(partitions) for partitions in target.values())


def test_fewer_members_than_partitions() -> None:
    target = simple(alike(2), numbers({A: 5}), {})
    assert loads(target) == [2, 3]
    assert set(owners(target).values()) == {1}


def test_more_members_than_partitions() -> None:
    target = simple(alike(5), numbers({A: 2}), {})
    assert owners(target) == {(A, 0): 3, (A, 1): 3}
    assert loads(target) == [1, 1, 1, 1, 2]


def test_nothing_to_assign() -> None:
    assert simple({}, numbers({A: 1}), {}) == {}
    assert simple(alike(1), {}, {}) == {"m0": frozenset()}


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=5))
def test_members_that_want_the_same_are_served_evenly(steps: list[tuple[int, int]]) -> None:
    held: Target = {}
    for members, partitions in steps:
        target = simple(alike(members), numbers({A: partitions}), held)
        wanted = -(-members // partitions)
        found = owners(target)
        assert set(found) == {(A, number) for number in range(partitions)}
        assert max(found.values()) <= wanted
        assert loads(target)[-1] - loads(target)[0] <= 1 or sum(found.values()) < (
            wanted * partitions
        )
        assert simple(alike(members), numbers({A: partitions}), target) == target
        held = target


@settings(deadline=None)
@given(st.lists(st.tuples(members_of, counts_of), min_size=1, max_size=5))
def test_members_that_want_different_things(
    steps: list[tuple[dict[str, frozenset[Uuid]], dict[Uuid, int]]],
) -> None:
    held: Target = {}
    for members, counts in steps:
        target = simple(members, numbers(counts), held)
        assert set(target) == set(members)
        for member, partitions in target.items():
            for topic, number in partitions:
                assert topic in members[member]
                assert number < counts[topic]
        wanted = {topic for topics in members.values() for topic in topics}
        assert set(owners(target)) == {
            (topic, n) for topic, count in counts.items() if topic in wanted for n in range(count)
        }
        assert simple(members, numbers(counts), target) == target
        held = target


def test_a_newcomer_takes_no_more_than_its_share() -> None:
    before = simple(alike(2), numbers({A: 6}), {})
    after = simple(alike(3), numbers({A: 6}), before)
    assert loads(after) == [2, 2, 2]
    assert all(after[member] <= before[member] for member in before)
