"""Server-side assignors: which member is to own which partition.

Both are sticky: what a member has been given stays with it unless balance forces a move. They are
functions of their input alone and deterministic: members are taken in the order of their instance
id, or else their member id.

* `uniform`: every member gets the same number of partitions, give or take one, over all topics.
  With subscriptions that differ no single move of a partition may bring two subscribers closer.
* `range`: every subscriber of a topic gets the same number of its partitions, give or take one, and
  topics with the same subscribers and the same number of partitions are split alike, so that
  partition n of all of them lies with one member (co-partitioning, for joins).

Racks break ties only: a free partition goes to a member in a rack of its replicas if one has room.
No partition is moved for the sake of a rack.

Limits: the work is O(partitions + members) for equal subscriptions, times a logarithm for different
ones; 1,000 members with 10,000 partitions take some tens of milliseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from penstock.base.ids import Uuid
from penstock.coordinator.consumer.balance import Balancer
from penstock.coordinator.consumer.partitions import Partition, restrict

Slot = TypeVar("Slot", int, Partition)


class Subscriber(NamedTuple):
    """What an assignor knows about a member."""

    order: tuple[int, str]
    topic_ids: frozenset[Uuid]
    rack: str | None


class GroupSpec(NamedTuple):
    """The question put to an assignor."""

    members: Mapping[str, Subscriber]
    counts: Mapping[Uuid, int]
    """Partitions per subscribed topic that exists."""
    held: Mapping[str, frozenset[Partition]]
    """The target assignment so far."""
    racks: Mapping[Partition, frozenset[str]]
    """Racks of the replicas; empty when the cluster knows no racks or no member names one."""


TargetAssignment = dict[str, frozenset[Partition]]
Assignor = Callable[[GroupSpec], TargetAssignment]


def member_order(member_id: str, instance_id: str | None) -> tuple[int, str]:
    """Static members first, by instance id: a restarted one keeps its place."""
    return (1, member_id) if instance_id is None else (0, instance_id)


def uniform(spec: GroupSpec) -> TargetAssignment:
    """Balance over all topics of the group."""
    members = _in_order(spec, spec.members)
    if not members:
        return {}
    first = spec.members[members[0]].topic_ids
    if any(spec.members[m].topic_ids != first for m in members):
        return Balancer(members, spec.members, spec.counts, spec.held, spec.racks).balance()
    counts = {topic: n for topic, n in spec.counts.items() if topic in first}
    slots = [(topic, number) for topic in sorted(counts) for number in range(counts[topic])]
    held = {m: restrict(spec.held.get(m, ()), counts) for m in members}
    near = _near_partition(spec) if spec.racks else None
    return {m: frozenset(given) for m, given in spread(slots, members, held, near).items()}


def range_(spec: GroupSpec) -> TargetAssignment:
    """Balance within each topic, and topics of one shape split alike."""
    target: dict[str, set[Partition]] = {m: set() for m in spec.members}
    subscribers: dict[Uuid, list[str]] = {}
    for member in _in_order(spec, spec.members):
        for topic in spec.members[member].topic_ids:
            subscribers.setdefault(topic, []).append(member)
    alike: dict[tuple[int, tuple[str, ...]], list[Uuid]] = {}
    for topic in sorted(subscribers):
        if topic in spec.counts:
            alike.setdefault((spec.counts[topic], tuple(subscribers[topic])), []).append(topic)
    for (count, members), topics in alike.items():
        held = _holders_by_number(spec, members, topics, count)
        near = _near_number(spec, topics) if spec.racks else None
        for member, numbers in spread(range(count), members, held, near).items():
            target[member].update((topic, number) for topic in topics for number in numbers)
    return {m: frozenset(given) for m, given in target.items()}


ASSIGNORS: dict[str, Assignor] = {"uniform": uniform, "range": range_}


def spread(
    slots: Sequence[Slot],
    members: Sequence[str],
    held: Mapping[str, set[Slot]],
    near: Callable[[str, Slot], bool] | None,
) -> dict[str, set[Slot]]:
    """Share `slots` evenly, moving only what stands above a member's share.

    The odd ones are left with members that hold more than the even share already, so the number of
    slots that change hands is the least possible.
    """
    share, odd = divmod(len(slots), len(members))
    limits = dict.fromkeys(members, share)
    for member in sorted(members, key=lambda m: len(held[m]) <= share)[:odd]:
        limits[member] += 1
    given = {m: _kept(m, held[m], limits[m], near) for m in members}
    taken = set().union(*given.values())
    free = [slot for slot in slots if slot not in taken]
    room = {m: limits[m] - len(given[m]) for m in members if len(given[m]) < limits[m]}
    if near is not None:
        free = _fill_near(free, room, given, near)
    _fill(free, room, given)
    return given


def _kept(
    member: str, held: set[Slot], limit: int, near: Callable[[str, Slot], bool] | None
) -> set[Slot]:
    """What a member keeps of what it holds: if too much, the nearest, then the lowest."""
    if len(held) <= limit:
        return set(held)

    def rank(slot: Slot) -> tuple[bool, Slot]:
        return near is not None and not near(member, slot), slot

    return set(sorted(held, key=rank)[:limit])


def _fill_near(
    free: Iterable[Slot],
    room: dict[str, int],
    given: dict[str, set[Slot]],
    near: Callable[[str, Slot], bool],
) -> list[Slot]:
    """Give slots to members beside them; returns the slots for which there is none with room."""
    rest: list[Slot] = []
    for slot in free:
        member = next((m for m, n in room.items() if n and near(m, slot)), None)
        if member is None:
            rest.append(slot)
            continue
        given[member].add(slot)
        room[member] -= 1
    return rest


def _fill(free: Sequence[Slot], room: Mapping[str, int], given: dict[str, set[Slot]]) -> None:
    at = 0
    for member, places in room.items():
        given[member].update(free[at : at + places])
        at += places


def _in_order(spec: GroupSpec, members: Iterable[str]) -> list[str]:
    return sorted(members, key=lambda m: spec.members[m].order)


def _holders_by_number(
    spec: GroupSpec, members: Sequence[str], topics: Sequence[Uuid], count: int
) -> dict[str, set[int]]:
    """The owner of partition n in most of `topics`: the split from which the new one starts."""
    among = set(topics)
    votes: dict[int, Counter[str]] = {}
    for member in members:
        for topic, number in spec.held.get(member, ()):
            if topic in among and number < count:
                votes.setdefault(number, Counter())[member] += 1
    held: dict[str, set[int]] = {m: set() for m in members}
    for number, counted in votes.items():
        # Counter keeps the members' order, and max() the first of equals.
        held[max(counted, key=counted.__getitem__)].add(number)
    return held


def _near_partition(spec: GroupSpec) -> Callable[[str, Partition], bool]:
    none: frozenset[str] = frozenset()
    return lambda member, slot: spec.members[member].rack in spec.racks.get(slot, none)


def _near_number(spec: GroupSpec, topics: Sequence[Uuid]) -> Callable[[str, int], bool]:
    none: frozenset[str] = frozenset()
    return lambda member, number: all(
        spec.members[member].rack in spec.racks.get((topic, number), none) for topic in topics
    )
