"""Who holds records of a share-partition, and until when.

A lock stands for the records that one member acquired, or renewed, at one time: they run out
together. The window says which records these are. A lock ends with its last record, so their number
is bounded by that of the records that are held.

The duration is a setting, so locks run out in the order in which they were taken as long as it does
not change: one line of locks for each duration, the next to run out in front. `now_ms` never
goes back.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterator

from penstock.base.errors import invariant
from penstock.share.window import MARK, NO_LOCK


class Lock:
    __slots__ = (
        "deadline_ms",
        "duration_ms",
        "first_offset",
        "id",
        "last_offset",
        "left",
        "member",
    )

    def __init__(self, number: int, member: str, deadline_ms: int, duration_ms: int) -> None:
        self.id = number
        self.member = member
        self.deadline_ms = deadline_ms
        self.duration_ms = duration_ms
        self.first_offset = 0
        self.last_offset = -1
        """All its records lie in this range; not all of the range need be its own."""
        self.left = 0
        """On how many records it still is."""

    @property
    def since_ms(self) -> int:
        return self.deadline_ms - self.duration_ms


class Locks:
    def __init__(self) -> None:
        self._by_id: dict[int, Lock] = {}
        self._lines: dict[int, OrderedDict[int, Lock]] = {}
        self._of_member: dict[str, int] = {}
        """How many locks each member has."""
        self._last_id = NO_LOCK

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Lock]:
        return iter(self._by_id.values())

    @property
    def next_id(self) -> int:
        """The id that the next lock will have."""
        return self._last_id + 1

    def add(
        self, member: str, now_ms: int, duration_ms: int, ranges: list[tuple[int, int]]
    ) -> None:
        """A lock on the records of ascending ranges of offsets, by the id that was `next_id`."""
        self._last_id += 1
        lock = Lock(self._last_id, member, now_ms + duration_ms, duration_ms)
        lock.first_offset, lock.last_offset = ranges[0][0], ranges[-1][1]
        lock.left = sum(last - first + 1 for first, last in ranges)
        self._by_id[lock.id] = lock
        self._of_member[member] = self._of_member.get(member, 0) + 1
        self._lines.setdefault(duration_ms, OrderedDict())[lock.id] = lock

    def let_go(self, ids: array[int]) -> None:
        """The locks that were on records which nobody holds any more, one for each record; what is
        no lock does not count.
        """
        if not ids:
            return
        first = ids[0]
        if len(ids) == 1 or ids == array("Q", (first,)) * len(ids):
            self._let_go_of(first, len(ids))
        else:
            for number, records in Counter(ids).items():
                self._let_go_of(number, records)

    def _let_go_of(self, number: int, records: int) -> None:
        if number == NO_LOCK or number & MARK:
            return
        lock = self._by_id[number]
        lock.left -= records
        invariant(lock.left >= 0, "a lock is taken off more records than it was on")
        if lock.left == 0:
            del self._by_id[number]
            self._of_member[lock.member] -= 1
            if not self._of_member[lock.member]:
                del self._of_member[lock.member]
            line = self._lines[lock.duration_ms]
            del line[number]
            if not line:
                del self._lines[lock.duration_ms]

    def are_of(self, member: str, ids: array[int]) -> bool:
        """Whether all these locks are the member's."""
        first = ids[0]
        if len(ids) == 1 or ids == array("Q", (first,)) * len(ids):
            return first != NO_LOCK and self._by_id[first].member == member
        return all(self.owner(number) == member for number in set(ids))

    def others(self, member: str) -> int:
        """How many other members hold records."""
        return len(self._of_member) - (member in self._of_member)

    def of(self, member: str) -> list[Lock]:
        return [lock for lock in self._by_id.values() if lock.member == member]

    def owner(self, number: int) -> str:
        """The member whose lock it is; empty for none."""
        lock = self.find(number)
        return "" if lock is None else lock.member

    def find(self, number: int) -> Lock | None:
        return self._by_id.get(number)

    @property
    def next_deadline_ms(self) -> int | None:
        fronts = [next(iter(line.values())).deadline_ms for line in self._lines.values()]
        return min(fronts, default=None)

    def run_out(self, now_ms: int) -> list[Lock]:
        """The locks whose time is over; they stay until their records let go of them."""
        found = []
        for line in self._lines.values():
            for lock in line.values():
                if lock.deadline_ms > now_ms:
                    break
                found.append(lock)
        return found

    def records_by_member(self) -> dict[str, int]:
        """How many records each member holds."""
        held: Counter[str] = Counter()
        for lock in self._by_id.values():
            held[lock.member] += lock.left
        return dict(held)
