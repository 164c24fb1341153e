"""Which brokers hold a partition's replicas: a pure function of the brokers, the counts and a
start.

* No broker holds two replicas of a partition.
* Replicas lie in as many racks as there are; a rack gets a second one only when every other rack
  has as many or has no broker left.
* Among the brokers that may lead, the numbers of first replicas (preferred leaders) differ by one
  at most.
* Further replicas go to the broker that the above allows and that has the fewest of this topic.
* Between equals, what the brokers hold of other topics decides, then their order in a ring, so that
  the cluster is even although each topic is small.
* A fenced broker never comes first, and is used only when the others are too few.

A broker without a rack counts as a rack of its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from penstock.base.errors import ApiError, ErrorCode


class Candidate(NamedTuple):
    id: int
    rack: str | None = None
    fenced: bool = False


class Load:
    """What the brokers hold: partitions that prefer them as leaders, and replicas in all."""

    def __init__(self, leaders: Counter[int], replicas: Counter[int]) -> None:
        self.leaders = leaders
        self.replicas = replicas

    def add(self, replicas: Sequence[int]) -> None:
        self.leaders[replicas[0]] += 1
        for broker_id in replicas:
            self.replicas[broker_id] += 1


def no_load() -> Load:
    return Load(Counter(), Counter())


def place(
    brokers: Iterable[Candidate],
    partitions: int,
    replication_factor: int,
    start: int = 0,
    load: Load | None = None,
    existing: Iterable[Sequence[int]] = (),
) -> Iterator[list[int]]:
    """The replicas of new partitions, preferred leader first, each chosen when it is asked for;
    `start` turns the ring.

    `load` is what the brokers hold already, and gets the new partitions added; `existing` are the
    replicas of the topic's earlier partitions.
    """
    candidates = sorted(brokers)
    usable = [c for c in candidates if not c.fenced]
    if len(candidates) < replication_factor:
        raise _impossible(
            replication_factor,
            f"only {len(candidates)} broker(s) are registered; choose a smaller replication factor",
        )
    if not usable:
        raise _impossible(replication_factor, "all brokers are fenced; wait until one is back")
    ring = _Ring(usable, [c for c in candidates if c.fenced], start, load or no_load(), existing)
    return (ring.place(replication_factor) for _ in range(partitions))


class _Ring:
    """The brokers in the order in which they take turns, and what they got of the topic so far."""

    def __init__(
        self,
        usable: Sequence[Candidate],
        fenced: Sequence[Candidate],
        start: int,
        load: Load,
        existing: Iterable[Sequence[int]],
    ) -> None:
        leaders = _interleaved(usable)
        turned = start % len(leaders)
        self._leaders = leaders[turned:] + leaders[:turned]
        self._all = [*self._leaders, *fenced]
        self._cluster = load
        self._topic = no_load()
        for replicas in existing:
            self._topic.add(replicas)
        self._turns: Counter[int] = Counter()

    def place(self, count: int) -> list[int]:
        leader = min(
            range(len(self._leaders)),
            key=lambda i: (
                self._topic.leaders[self._leaders[i].id],
                self._cluster.leaders[self._leaders[i].id],
            ),
        )
        chosen = [self._leaders[leader]]
        in_rack: dict[str, int] = defaultdict(int)
        in_rack[_rack(chosen[0])] += 1
        rest = self._followers(leader)
        while len(chosen) < count:
            # min() keeps the ring's order among equals, which spreads the followers.
            best = min(
                rest,
                key=lambda c: (
                    c.fenced,
                    in_rack[_rack(c)],
                    self._topic.replicas[c.id],
                    self._cluster.replicas[c.id],
                ),
            )
            rest.remove(best)
            chosen.append(best)
            in_rack[_rack(best)] += 1
        replicas = [candidate.id for candidate in chosen]
        self._topic.add(replicas)
        self._cluster.add(replicas)
        return replicas

    def _followers(self, leader: int) -> list[Candidate]:
        """All but the leader, in an order that is another one each time it leads."""
        turn = self._turns[leader]
        self._turns[leader] += 1
        others = len(self._all) - 1
        return [
            self._all[(leader + 1 + (turn + i) % others) % len(self._all)] for i in range(others)
        ]


def _interleaved(candidates: Sequence[Candidate]) -> list[Candidate]:
    """One of each rack, then the next of each rack, so that neighbours stand in different racks."""
    racks: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        racks[_rack(candidate)].append(candidate)
    rounds = zip_longest(*(racks[name] for name in sorted(racks)))
    return [candidate for turn in rounds for candidate in turn if candidate is not None]


def _rack(candidate: Candidate) -> str:
    return f"broker {candidate.id}" if candidate.rack is None else f"rack {candidate.rack}"


def _impossible(replication_factor: int, why: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"a partition cannot have {replication_factor} replica(s): {why}",
    )
