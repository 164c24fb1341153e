"""The uniform assignor for members whose subscriptions differ.

Two steps over loads (partitions per member). Place: every partition that nobody holds goes to the
least loaded of its subscribers, topics with few subscribers first. Level: while some subscriber of
a topic could take a partition from another that holds at least two more, it does. Each move lowers
the sum of squared loads, so levelling ends; at its end no single move brings two members closer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Protocol

from penstock.base.ids import Uuid
from penstock.coordinator.consumer.partitions import Partition, restrict


class _Member(Protocol):
    @property
    def topic_ids(self) -> frozenset[Uuid]: ...

    @property
    def rack(self) -> str | None: ...


class Balancer:
    """One computation; thrown away after `balance`."""

    __slots__ = ("counts", "given", "held_of", "members", "order", "racks", "rank", "subscribers")

    def __init__(
        self,
        order: Sequence[str],
        members: Mapping[str, _Member],
        counts: Mapping[Uuid, int],
        held: Mapping[str, frozenset[Partition]],
        racks: Mapping[Partition, frozenset[str]],
    ) -> None:
        self.order = order
        self.members = members
        self.counts = counts
        self.racks = racks
        self.rank = {m: i for i, m in enumerate(order)}
        self.given: dict[str, set[Partition]] = {}
        # Numbers by topic and holder: what a level step may take from whom.
        self.held_of: dict[Uuid, dict[str, set[int]]] = {}
        self.subscribers: dict[Uuid, list[str]] = {}
        for member in order:
            topics = members[member].topic_ids
            for topic in topics:
                if topic in counts:
                    self.subscribers.setdefault(topic, []).append(member)
            kept = {p for p in restrict(held.get(member, ()), counts) if p[0] in topics}
            self.given[member] = kept
            for topic, number in kept:
                self.held_of.setdefault(topic, {}).setdefault(member, set()).add(number)

    def balance(self) -> dict[str, frozenset[Partition]]:
        """The target assignment."""
        for topic in sorted(self.subscribers, key=lambda t: (len(self.subscribers[t]), t)):
            self._place(topic)
        moved = True
        while moved:
            moved = False
            for topic in sorted(self.subscribers):
                moved |= self._level(topic)
        return {m: frozenset(given) for m, given in self.given.items()}

    def _give(self, member: str, topic: Uuid, number: int) -> None:
        self.given[member].add((topic, number))
        self.held_of.setdefault(topic, {}).setdefault(member, set()).add(number)

    def _take(self, member: str, topic: Uuid) -> int:
        numbers = self.held_of[topic][member]
        number = max(numbers)
        numbers.remove(number)
        self.given[member].remove((topic, number))
        return number

    def _place(self, topic: Uuid) -> None:
        held = self.held_of.get(topic, {})
        taken = {number for numbers in held.values() for number in numbers}
        free = [n for n in range(self.counts[topic]) if n not in taken]
        if not free:
            return
        queues: dict[str | None, list[tuple[int, int, str]]] = {None: []}
        for member in self.subscribers[topic]:
            entry = (len(self.given[member]), self.rank[member], member)
            queues[None].append(entry)
            rack = self.members[member].rack
            if rack is not None and self.racks:
                queues.setdefault(rack, []).append(entry)
        for queue in queues.values():
            heapify(queue)
        for number in free:
            member = self._least_loaded(queues, self.racks.get((topic, number), frozenset()))
            self._give(member, topic, number)
            entry = (len(self.given[member]), self.rank[member], member)
            heappush(queues[None], entry)
            rack = self.members[member].rack
            if rack in queues and rack is not None:
                heappush(queues[rack], entry)

    def _least_loaded(
        self, queues: Mapping[str | None, list[tuple[int, int, str]]], racks: frozenset[str]
    ) -> str:
        best = self._top(queues[None])
        for rack in sorted(racks):
            near = self._top(queues[rack]) if rack in queues else None
            if near is not None and best is not None and near[0] == best[0]:
                return near[2]
        assert best is not None
        return best[2]

    def _top(self, queue: list[tuple[int, int, str]]) -> tuple[int, int, str] | None:
        """The first entry whose load is still true; older entries of a member are dropped."""
        while queue and queue[0][0] != len(self.given[queue[0][2]]):
            heappop(queue)
        return queue[0] if queue else None

    def _level(self, topic: Uuid) -> bool:
        """Level the subscribers of one topic; whether anything moved."""
        low = [(len(self.given[m]), self.rank[m], m) for m in self.subscribers[topic]]
        high = [
            (-len(self.given[m]), self.rank[m], m)
            for m, numbers in self.held_of.get(topic, {}).items()
            if numbers
        ]
        heapify(low)
        heapify(high)
        moved = False
        while high and low:
            giver, taker = high[0][2], low[0][2]
            if -high[0][0] != len(self.given[giver]) or not self.held_of[topic][giver]:
                heappop(high)
                if self.held_of[topic][giver]:
                    heappush(high, (-len(self.given[giver]), self.rank[giver], giver))
                continue
            if low[0][0] != len(self.given[taker]):
                heappop(low)
                heappush(low, (len(self.given[taker]), self.rank[taker], taker))
                continue
            if len(self.given[giver]) - len(self.given[taker]) < 2:
                break
            self._give(taker, topic, self._take(giver, topic))
            heappush(high, (-len(self.given[taker]), self.rank[taker], taker))
            moved = True
        return moved
