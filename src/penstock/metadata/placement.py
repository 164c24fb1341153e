"""Which brokers hold a partition's replicas: a pure function of the brokers, the counts and a
start.

* No broker holds two replicas of a partition.
* Replicas lie in as many racks as there are; a rack gets a second one only when every other rack
has as many or has no broker left. * Among the brokers that may lead, the numbers of first
replicas (preferred leaders) differ by one at most.
* Further replicas go to the least loaded broker that the above allows.
* A fenced broker never comes first, and is used only when the others are too few.

A broker without a rack stands in a rack of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

from penstock.base.errors import ApiError, ErrorCode


class Candidate(NamedTuple):
    id: int
    rack: str | None = None
    fenced: bool = False


def place(
    brokers: Iterable[Candidate], partitions: int, replication_factor: int, start: int = 0
) -> list[list[int]]:
    """The replicas of new partitions, preferred leader first; `start` turns the ring."""
    candidates = sorted(brokers)
    usable = [c for c in candidates if not c.fenced]
    if len(candidates) < replication_factor:
        raise _impossible(
            replication_factor,
            f"only {len(candidates)} broker(s) are registered; choose a smaller replication factor",
        )
    if not usable:
        raise _impossible(replication_factor, "all brokers are fenced; wait until one is back")
    leaders = _interleaved(usable)
    ring = leaders + [c for c in candidates if c.fenced]
    load: dict[int, int] = dict.fromkeys((c.id for c in ring), 0)
    return [
        _replicas(ring, (start + i) % len(leaders), i // len(leaders), replication_factor, load)
        for i in range(partitions)
    ]


def _replicas(
    ring: Sequence[Candidate], first: int, turn: int, count: int, load: dict[int, int]
) -> list[int]:
    """`turn`: how often all leaders had their turn; it gives a leader other followers each time."""
    in_rack: dict[str, int] = defaultdict(int)
    chosen = [ring[first]]
    in_rack[_rack(ring[first])] += 1
    others = len(ring) - 1
    rest = [ring[(first + 1 + (turn + i) % others) % len(ring)] for i in range(others)]
    while len(chosen) < count:
        # min() keeps the ring's order among equals, which spreads the followers.
        best = min(rest, key=lambda c: (c.fenced, in_rack[_rack(c)], load[c.id]))
        rest.remove(best)
        chosen.append(best)
        in_rack[_rack(best)] += 1
    for candidate in chosen:
        load[candidate.id] += 1
    return [candidate.id for candidate in chosen]


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
