"""Plans for moving replicas: an even cluster, an empty broker, or another replication factor, with
as few moves of data as that takes.

A plan is made in steps, each of which keeps what the steps before have reached:

1. what has to be: replicas leave brokers that are drained or gone, and each partition gets as many
   replicas as it should have;
2. replicas of a partition spread over the racks;
3. every broker has as many replicas as the others, one more or less;
4. brokers hold about as many bytes: replicas of different size change places, until the fullest
   and the emptiest are within `BYTES_SKEW_MAX` of the mean;
5. every broker is preferred as leader as often as the others; this only reorders replicas, and
   moves no data.

A broker that is fenced or cordoned keeps what it has and gets nothing new. A broker without a rack
counts as a rack of its own. The same input always gives the same plan.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from penstock.base.errors import PenstockError
from penstock.metadata.placement import Candidate

Key: TypeAlias = tuple[str, int]
"""A partition: topic and index."""

BYTES_SKEW_MAX: Final = 0.1
"""How far bytes per broker may be apart, as a part of their mean, before data is moved for it."""
SWAPS_MAX: Final = 10_000


class NoPlan(PenstockError):
    """What is wanted cannot be reached, in one sentence that says what to do."""


class Move(NamedTuple):
    """New replicas of a partition, preferred leader first."""

    topic: str
    partition: int
    old: tuple[int, ...]
    new: tuple[int, ...]

    @property
    def adding(self) -> tuple[int, ...]:
        """The brokers that have to copy the partition."""
        return tuple(b for b in self.new if b not in self.old)


def plan(
    assignments: Mapping[Key, tuple[int, ...]],
    brokers: Sequence[Candidate],
    *,
    drain: Collection[int] = (),
    sizes: Mapping[Key, int] | None = None,
    replication_factor: Mapping[str, int] | None = None,
    rebalance: bool = True,
) -> list[Move]:
    """The moves, in the order of `assignments`; none when all is well as it is.

    `sizes` are bytes per partition. `replication_factor` by topic, for those that are to change.
    Without `rebalance` only step 1 is done, so that nothing moves that does not have to.
    """
    planner = _Planner(assignments, brokers, drain, sizes or {})
    planner.do_what_must_be(replication_factor or {})
    if rebalance:
        planner.spread_over_racks()
        planner.level_replicas()
        planner.level_bytes()
        planner.level_leaders()
    return [
        Move(*key, old, tuple(planner.replicas[key]))
        for key, old in assignments.items()
        if old != tuple(planner.replicas[key])
    ]


class _Planner:
    """The assignment under way, and what each broker has by it."""

    def __init__(
        self,
        assignments: Mapping[Key, tuple[int, ...]],
        brokers: Sequence[Candidate],
        drain: Collection[int],
        sizes: Mapping[Key, int],
    ) -> None:
        self.replicas = {key: list(replicas) for key, replicas in assignments.items()}
        self._sizes = sizes
        self._racks = {
            c.id: f"broker {c.id}" if c.rack is None else f"rack {c.rack}" for c in brokers
        }
        self._staying = {c.id for c in brokers if c.id not in drain}
        self._open = sorted(c.id for c in brokers if c.id not in drain and not c.fenced)
        self._held: dict[int, dict[Key, None]] = defaultdict(dict)
        self._bytes: Counter[int] = Counter()
        self._of_topic: Counter[tuple[str, int]] = Counter()
        for key, replicas in self.replicas.items():
            for broker in replicas:
                self._note(key, broker, 1)

    def _size(self, key: Key) -> int:
        return self._sizes.get(key, 0)

    def _note(self, key: Key, broker: int, sign: int) -> None:
        if sign > 0:
            self._held[broker][key] = None
        else:
            del self._held[broker][key]
        self._bytes[broker] += sign * self._size(key)
        self._of_topic[key[0], broker] += sign

    def _move(self, key: Key, old: int, new: int) -> None:
        """In the place of the old replica, so that the preferred leader moves only with it."""
        replicas = self.replicas[key]
        replicas[replicas.index(old)] = new
        self._note(key, old, -1)
        self._note(key, new, 1)

    def _crowding(self, replicas: Iterable[int]) -> int:
        """How many pairs of replicas share a rack; 0 is best."""
        racks = Counter(self._racks.get(b, f"broker {b}") for b in replicas)
        return sum(n * (n - 1) // 2 for n in racks.values())

    def _best(self, key: Key, keep: Sequence[int]) -> int | None:
        """The open broker that fits best together with the replicas `keep`."""
        return min(
            (b for b in self._open if b not in self.replicas[key]),
            key=lambda b: (
                self._crowding([*keep, b]),
                len(self._held[b]),
                self._bytes[b],
                self._of_topic[key[0], b],
                b,
            ),
            default=None,
        )

    # -- step 1 --------------------------------------------------------------------------------

    def do_what_must_be(self, factors: Mapping[str, int]) -> None:
        for key, replicas in self.replicas.items():
            wanted = factors.get(key[0], len(replicas))
            staying = [b for b in replicas if b in self._staying]
            while len(staying) > wanted:
                staying.remove(self._superfluous(staying))
            while len(staying) < wanted:
                self._add_one(key, staying, wanted)
            for broker in [b for b in self.replicas[key] if b not in staying]:
                self.replicas[key].remove(broker)
                self._note(key, broker, -1)

    def _superfluous(self, replicas: Sequence[int]) -> int:
        """Not the first, as it leads; from a crowded rack, then from a full broker."""
        return max(
            replicas[1:],
            key=lambda b: (
                -self._crowding(r for r in replicas if r != b),
                len(self._held[b]),
                self._bytes[b],
                b,
            ),
        )

    def _add_one(self, key: Key, staying: list[int], wanted: int) -> None:
        best = self._best(key, staying)
        if best is None:
            raise NoPlan(
                f"{key[0]}-{key[1]} is to have {wanted} replica(s), and only {len(self._open)} "
                "broker(s) can take one: add brokers, or choose a smaller replication factor"
            )
        gone = next((b for b in self.replicas[key] if b not in self._staying), None)
        if gone is None:
            self.replicas[key].append(best)
            self._note(key, best, 1)
        else:
            self._move(key, gone, best)
        staying[:] = [b for b in self.replicas[key] if b in staying or b == best]

    # -- step 2 --------------------------------------------------------------------------------

    def spread_over_racks(self) -> None:
        for key, replicas in self.replicas.items():
            while (now := self._crowding(replicas)) > 0:
                options = []
                for broker in replicas[::-1]:
                    keep = [b for b in replicas if b != broker]
                    best = self._best(key, keep)
                    if best is not None:
                        options.append((self._crowding([*keep, best]), broker, best))
                if not options or min(options, key=lambda o: o[0])[0] >= now:
                    break
                _, old, new = min(options, key=lambda o: o[0])
                self._move(key, old, new)

    # -- step 3 --------------------------------------------------------------------------------

    def level_replicas(self) -> None:
        """First those that have too many give to those that have too few, then either is finished
        with those between. Where racks are in the way, replicas go by way of a third broker.
        """
        if not self._open:
            return
        total = sum(len(self._held[b]) for b in self._open)
        least = total // len(self._open)
        most = -(-total // len(self._open))
        for keep, fill in ((most, least), (least, least), (most, most), (0, total)):
            while self._level(keep, fill, one_by_one=keep == 0):
                pass

    def _level(self, keep: int, fill: int, *, one_by_one: bool) -> bool:
        """Brokers with more than `keep` replicas give to those with fewer than `fill`."""
        moved = False
        for low in sorted(self._open, key=lambda b: (len(self._held[b]), b)):
            for high in sorted(self._open, key=lambda b: (-len(self._held[b]), b)):
                apart = len(self._held[high]) - len(self._held[low])
                count = min(len(self._held[high]) - keep, fill - len(self._held[low]))
                if count > 0 and apart > 1:
                    count = 1 if one_by_one else count
                    moved = self._level_pair(high, low, count) or moved
        return moved

    def _level_pair(self, high: int, low: int, count: int) -> bool:
        """Moves up to `count` replicas from `high` to `low`, those that even out bytes most."""
        movable = [key for key in self._held[high] if self._may_move(key, high, low)]
        gap = (self._bytes[high] - self._bytes[low]) / 2 / count
        movable.sort(
            key=lambda key: (
                self._of_topic[key[0], low] - self._of_topic[key[0], high],
                abs(self._size(key) - gap),
            )
        )
        for key in movable[:count]:
            self._move(key, high, low)
        return bool(movable)

    def _may_move(self, key: Key, old: int, new: int) -> bool:
        replicas = self.replicas[key]
        if new in replicas:
            return False
        after = [new if b == old else b for b in replicas]
        return self._crowding(after) <= self._crowding(replicas)

    # -- step 4 --------------------------------------------------------------------------------

    def level_bytes(self) -> None:
        """Only between open brokers: a swap puts something on both."""
        if len(self._open) < 2:
            return
        mean = sum(self._bytes[b] for b in self._open) / len(self._open)
        for _ in range(SWAPS_MAX):
            ordered = sorted(self._open, key=lambda b: (self._bytes[b], b))
            low, high = ordered[0], ordered[-1]
            gap = self._bytes[high] - self._bytes[low]
            if gap <= BYTES_SKEW_MAX * mean or not self._swap(high, low, gap):
                return

    def _swap(self, high: int, low: int, gap: int) -> bool:
        """Lets two replicas change places so that the gap shrinks most; False if none can."""
        small = sorted(
            (key for key in self._held[low] if self._may_move(key, low, high)), key=self._size
        )
        sizes = [self._size(key) for key in small]
        best: tuple[float, Key, Key] | None = None
        for key in self._held[high]:
            if not small or not self._may_move(key, high, low):
                continue
            at = bisect_left(sizes, self._size(key) - gap / 2)
            for i in (at - 1, at):
                if 0 <= i < len(small):
                    shift = self._size(key) - sizes[i]
                    rest = abs(gap - 2 * shift)
                    if 0 < shift < gap and (best is None or rest < best[0]):
                        best = (rest, key, small[i])
        if best is None:
            return False
        self._move(best[1], high, low)
        self._move(best[2], low, high)
        return True

    # -- step 5 --------------------------------------------------------------------------------

    def level_leaders(self) -> None:
        leading: dict[int, dict[Key, None]] = {b: {} for b in sorted(self._staying)}
        for key, replicas in self.replicas.items():
            leading[replicas[0]][key] = None
        for high in sorted(leading, key=lambda b: (-len(leading[b]), b)):
            while (path := self._handover(high, leading)) is not None:
                for key, old, new in path:
                    replicas = self.replicas[key]
                    at = replicas.index(new)
                    replicas[0], replicas[at] = new, old
                    del leading[old][key]
                    leading[new][key] = None

    def _handover(
        self, high: int, leading: Mapping[int, Mapping[Key, None]]
    ) -> list[tuple[Key, int, int]] | None:
        """A chain of partitions by which a leadership comes from `high` to one with two fewer."""
        found: dict[int, tuple[Key, int] | None] = {high: None}
        queue = deque([high])
        while queue:
            broker = queue.popleft()
            if len(leading[broker]) < len(leading[high]) - 1:
                path = []
                while (step := found[broker]) is not None:
                    path.append((step[0], step[1], broker))
                    broker = step[1]
                return path
            for key in leading[broker]:
                for other in self.replicas[key][1:]:
                    if other not in found:
                        found[other] = (key, broker)
                        queue.append(other)
        return None
