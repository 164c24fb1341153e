"""The assignor of share groups: every partition to as many members as there are enough for.

With more members than partitions each partition goes to ceil(members / partitions) of them, else to
one; every member gets the same number, give or take one. Where members subscribe to different
topics, this holds for each topic by itself.

Sticky: a member keeps what it has unless it has too much or the partition has too many owners, and
the odd ones stay with members that have more already. Now and then a partition has one owner less
than wanted, where all members with room have it already; it never has none. A function of its input
alone: members are taken in the order of their ids.

Limits: the work is O(members + partitions x owners), times a logarithm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from penstock.base.ids import Uuid
from penstock.coordinator.consumer.partitions import Partition

SIMPLE = "simple"


def simple(
    members: Mapping[str, frozenset[Uuid]],
    numbers: Mapping[Uuid, frozenset[int]],
    held: Mapping[str, frozenset[Partition]],
) -> dict[str, frozenset[Partition]]:
    """The target assignment: `members` with their topics, `numbers` of the partitions that may be
    assigned, `held` is the target so far.
    """
    order = sorted(members)
    given: dict[str, set[Partition]] = {member: set() for member in order}
    for topics, subscribers in _pools(order, members):
        pool = [(topic, number) for topic in topics for number in sorted(numbers.get(topic, ()))]
        load = {member: len(given[member]) for member in subscribers}
        if pool:
            for member, partitions in _spread(pool, subscribers, held, load).items():
                given[member] |= partitions
    return {member: frozenset(partitions) for member, partitions in given.items()}


def _pools(
    order: Sequence[str], members: Mapping[str, frozenset[Uuid]]
) -> list[tuple[list[Uuid], list[str]]]:
    """What is shared out together: all topics if all members want the same, else each topic."""
    wanted = set(members.values())
    if len(wanted) == 1:
        return [(sorted(wanted.pop()), list(order))]
    subscribers: dict[Uuid, list[str]] = {}
    for member in order:
        for topic in members[member]:
            subscribers.setdefault(topic, []).append(member)
    return [([topic], subscribers[topic]) for topic in sorted(subscribers)]


def _spread(
    pool: Sequence[Partition],
    members: Sequence[str],
    held: Mapping[str, frozenset[Partition]],
    load: Mapping[str, int],
) -> dict[str, set[Partition]]:
    wanted = -(-len(members) // len(pool))
    given = {member: held.get(member, frozenset()) & set(pool) for member in members}
    kept = {member: set(partitions) for member, partitions in given.items()}
    base, odd = divmod(wanted * len(pool), len(members))
    limits = dict.fromkeys(members, base)
    for member in sorted(members, key=lambda m: (len(kept[m]) <= base, load[m]))[:odd]:
        limits[member] += 1
    owners: dict[Partition, list[str]] = {partition: [] for partition in pool}
    for member in members:
        for partition in kept[member]:
            owners[partition].append(member)
    _take_surplus(kept, limits, owners)
    for partition, having in owners.items():
        while len(having) > wanted:
            kept[having.pop()].remove(partition)
    _fill(pool, kept, limits, owners, wanted)
    return kept


def _take_surplus(
    kept: Mapping[str, set[Partition]],
    limits: Mapping[str, int],
    owners: Mapping[Partition, list[str]],
) -> None:
    """Take from members what is too much, first of all what others have, too."""
    for member, partitions in kept.items():
        surplus = len(partitions) - limits[member]
        if surplus <= 0:
            continue
        order = sorted(partitions, key=lambda p: (-len(owners[p]), p))
        for partition in order[:surplus]:
            partitions.remove(partition)
            owners[partition].remove(member)


def _fill(
    pool: Sequence[Partition],
    kept: Mapping[str, set[Partition]],
    limits: Mapping[str, int],
    owners: Mapping[Partition, list[str]],
    wanted: int,
) -> None:
    """Give what has too few owners to the members with room, in turn."""
    room = deque(member for member in kept if len(kept[member]) < limits[member])
    for partition in pool:
        missing = wanted - len(owners[partition])
        passed_over = 0
        while missing > 0 and passed_over < len(room):
            member = room.popleft()
            if partition in kept[member]:
                room.append(member)
                passed_over += 1
                continue
            kept[member].add(partition)
            missing -= 1
            passed_over = 0
            if len(kept[member]) < limits[member]:
                room.append(member)
