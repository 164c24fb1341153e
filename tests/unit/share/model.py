"""A share-partition remembered offset by offset, as naively as it goes, and the store behind it.

The model is told what a member was given and judges whether that may be; what everything else
comes to it works out itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.share.changes import Change
from penstock.share.partition import (
    AckBatch,
    Acquired,
    AcquireMode,
    ShareLimits,
    SharePartition,
)
from penstock.share.types import ShareState, StateBatch

Range = tuple[int, int]
FREE, UNSEEN = "AVAILABLE", "UNSEEN"
HELD = "ACQUIRED"
DONE = ("ACKNOWLEDGED", "ARCHIVED")
PERSISTED = {FREE: 0, "ACKNOWLEDGED": 2, "ARCHIVED": 4}
BY_TYPE = {0: "ARCHIVED", 1: "ACKNOWLEDGED", 2: FREE, 3: "ARCHIVED"}
RENEW = 4


@dataclass
class Record:
    state: str = UNSEEN
    count: int = 0
    owner: str = ""
    deadline: int | None = None
    to: str = ""
    """The state that it changes to."""

    def shown(self) -> tuple[str, int, str]:
        return (f"TO_{self.to}" if self.to else self.state), self.count, self.owner


class Store:
    """What is persisted, by offset."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.records: dict[int, tuple[int, int]] = {}

    def write(self, start: int, batches: Iterable[StateBatch]) -> None:
        assert start >= self.start, "the persisted start goes back"
        self.start = start
        for first, last, state, count, *_ in batches:
            for offset in range(first, last + 1):
                self.records[offset] = state, count
        self.records = {o: r for o, r in sorted(self.records.items()) if o >= start}

    def state(self) -> ShareState:
        batches: list[StateBatch] = []
        for offset, record in self.records.items():
            if batches and batches[-1][1:] == (offset - 1, *record):
                batches[-1] = batches[-1]._replace(last_offset=offset)
            else:
                batches.append(StateBatch(offset, offset, *record))
        return ShareState(1, self.start, 0, batches)


class Begun(NamedTuple):
    """What a change was about: offset and the state to go to."""

    targets: dict[int, str]


@dataclass
class Model:
    limits: ShareLimits
    start: int
    records: dict[int, Record] = field(default_factory=dict)
    acked: set[int] = field(default_factory=set)
    """Acknowledged, and that is written: nobody may ever get them again."""

    @property
    def end(self) -> int:
        return self.start + len(self.records) - 1

    def some(self, offsets: Iterable[int], *states: str) -> list[Record]:
        found = (self.records.get(o) for o in offsets)
        return [r for r in found if r is not None and not r.to and r.state in states]

    @property
    def unfinished(self) -> int:
        return sum(r.state not in DONE or bool(r.to) for r in self.records.values())

    def advance(self) -> None:
        while self.records:
            first = self.records[self.start]
            if first.to or first.state not in DONE:
                return
            del self.records[self.start]
            self.start += 1

    def release(self, record: Record) -> str:
        return "ARCHIVED" if record.count >= self.limits.delivery_count_limit else FREE

    # -- acquiring -----------------------------------------------------------------------------

    def acquire(
        self,
        member: str,
        batches: list[Range],
        fetch_offset: int,
        quota: int,
        mode: AcquireMode,
        given: list[Acquired],
        now: int,
    ) -> None:
        present = {o for base, last in batches for o in range(base, last + 1)}
        missing = set(range(fetch_offset, batches[-1][1] + 1)) - present
        for record in self.some(missing, FREE, UNSEEN):
            record.state = "ARCHIVED"
        self.advance()
        if not self.records:
            self.start = max(self.start, batches[0][0])
        room = self.limits.record_locks_max - self.unfinished
        end = self.end
        could = bool(self.some(present, FREE, UNSEEN)) or (room > 0 and batches[-1][1] > end)
        assert bool(given) == could, f"given {given}, and it could: {could}"
        self.judge_amount(batches, quota, mode, given)
        if given and given[-1].last_offset > end:
            assert room > 0, "the window grows beyond its limit"
            self.judge_growth(batches, room, mode, given, end)
        unseen = bool(given) and self.is_new(given[-1].last_offset)
        before = -1
        for first, last, count in given:
            assert before < first <= last, f"{given} does not ascend"
            before = last
            for offset in range(first, last + 1):
                assert offset in present, f"{offset} was not read"
                assert offset not in self.acked, f"{offset} was acknowledged"
                self.take(member, offset, count, missing, now)
        if mode is AcquireMode.RECORD_LIMIT and unseen:
            self.leave_rest(batches, given[-1].last_offset, grown=given[-1].last_offset > end)

    def is_new(self, offset: int) -> bool:
        return offset not in self.records or self.records[offset].state == UNSEEN

    def take(self, member: str, offset: int, count: int, missing: set[int], now: int) -> None:
        assert offset >= self.start
        while self.end < offset:
            self.records[self.end + 1] = Record()
            if self.end < offset:
                assert self.end in missing, f"{self.end} was left out"
                self.records[self.end].state = "ARCHIVED"
        record = self.records[offset]
        assert not record.to, f"{offset} is changing"
        assert record.state in (FREE, UNSEEN), f"{offset} is {record.state}"
        assert record.count + 1 == count <= self.limits.delivery_count_limit
        deadline = now + self.limits.lock_duration_ms
        self.records[offset] = Record(HELD, count, member, deadline)

    def judge_amount(
        self, batches: list[Range], quota: int, mode: AcquireMode, given: list[Acquired]
    ) -> None:
        total = sum(last - first + 1 for first, last, _ in given)
        if mode is AcquireMode.RECORD_LIMIT:
            assert total <= quota
        elif given:
            # The quota may be passed only within the last record batch.
            base = next(b for b, last in batches if b <= given[-1].last_offset <= last)
            ahead = [o for first, last, _ in given for o in range(first, last + 1) if o < base]
            assert len(ahead) < quota, f"{given} is more than {quota} and its last batch"

    def judge_growth(
        self, batches: list[Range], room: int, mode: AcquireMode, given: list[Acquired], end: int
    ) -> None:
        """Beyond its limit the window grows by the rest of a record batch at most."""
        base = next(b for b, last in batches if b <= given[-1].last_offset <= last)
        new = [o for first, last, _ in given for o in range(first, last + 1) if end < o < base]
        assert len(new) < room, f"{given} is more than {room} new records and their last batch"

    def leave_rest(self, batches: list[Range], last_given: int, *, grown: bool) -> None:
        """What is new of the last record batch beyond an exact quota stays free."""
        last = next(last for base, last in batches if base <= last_given <= last)
        for offset in range(last_given + 1, last + 1):
            if not self.is_new(offset) or (offset > self.end and not grown):
                return
            self.records[offset] = Record(FREE)

    # -- everything else -----------------------------------------------------------------------

    def may_acknowledge(self, member: str, batches: list[AckBatch]) -> str | None:
        """The error code; None if the member may."""
        before = -1
        for first, last, types in batches:
            if first > last or first < before or len(types) not in (1, last - first + 1):
                return "INVALID_REQUEST"
            before = last
        seen: set[int] = set()
        for first, last, _ in batches:
            if last < self.start:
                continue
            if not self.records:
                return "INVALID_RECORD_STATE"
            if last > self.end:
                return "INVALID_REQUEST"
            for offset in range(max(first, self.start), last + 1):
                record = self.records[offset]
                if offset in seen or record.to or record.state != HELD or record.owner != member:
                    return "INVALID_RECORD_STATE"
                seen.add(offset)
        renews = any(RENEW in types for _, last, types in batches if last >= self.start)
        return "INVALID_RECORD_STATE" if renews and not self.limits.renew_allowed else None

    def acknowledge(self, batches: list[AckBatch], now: int) -> Begun:
        begun = Begun({})
        for first, last, types in batches:
            for offset in range(max(first, self.start), last + 1):
                record = self.records[offset]
                said = types[0] if len(types) == 1 else types[offset - first]
                if said == RENEW:
                    record.deadline = now + self.limits.lock_duration_ms
                else:
                    record.to = BY_TYPE[said]
                    if record.to == FREE:
                        record.to = self.release(record)
                    begun.targets[offset] = record.to
        return begun

    def release_all(self, member: str) -> Begun:
        begun = Begun({})
        for offset, record in self.records.items():
            if record.owner == member:
                record.owner, record.deadline = "", None
                if not record.to:
                    record.to = self.release(record)
                    begun.targets[offset] = record.to
        return begun

    def expire(self, now: int) -> bool:
        freed = False
        for record in self.records.values():
            if record.deadline is not None and record.deadline <= now:
                record.owner, record.deadline = "", None
                if not record.to:
                    record.state = self.release(record)
                    freed = True
        self.advance()
        return freed

    def archive(self, ranges: list[Range]) -> bool:
        records = self.some((o for a, b in ranges for o in range(a, b + 1)), FREE, UNSEEN, HELD)
        for record in records:
            record.state, record.owner, record.deadline = "ARCHIVED", "", None
        self.advance()
        return bool(records)

    def log_start_moved(self, offset: int) -> None:
        self.records = {o: r for o, r in self.records.items() if o >= offset}
        self.start = max(self.start, offset)
        self.advance()

    def written(self, begun: Begun) -> None:
        for offset, target in begun.targets.items():
            if target == "ACKNOWLEDGED":
                self.acked.add(offset)
            if offset in self.records:
                record = self.records[offset]
                assert record.to == target
                self.records[offset] = Record(target, record.count)
        self.advance()

    def failed(self, begun: Begun) -> bool:
        """Whether some of it is free now."""
        freed = False
        for offset in begun.targets:
            if record := self.records.get(offset):
                record.to = ""
                if not record.owner:
                    record.state = self.release(record)
                    freed = True
        self.advance()
        return freed

    def reloaded(self, store: Store) -> None:
        """As it is after a crash: what was not persisted is not known any more."""
        self.start = store.start
        names = {number: name for name, number in PERSISTED.items()}
        end = max(store.records, default=store.start - 1)
        self.records = {o: Record() for o in range(store.start, end + 1)}
        for offset, (state, count) in store.records.items():
            self.records[offset] = Record(names[state], count)
        self.advance()

    # -- comparing -----------------------------------------------------------------------------

    def compare(self, partition: SharePartition) -> None:
        partition.invariants()
        shown = {}
        for first, last, state, count, owner, *_ in partition.describe():
            for offset in range(first, last + 1):
                shown[offset] = state, count, owner
        assert shown == {o: r.shown() for o, r in self.records.items()}
        assert (partition.start_offset, partition.end_offset) == (self.start, self.end)
        open_ = [o for o, r in self.records.items() if not r.to and r.state in (FREE, UNSEEN)]
        assert partition.next_fetch_offset == min(open_, default=self.end + 1)
        assert partition.has_available == bool(open_)
        deadlines = [r.deadline for r in self.records.values() if r.deadline is not None]
        assert partition.next_deadline_ms == min(deadlines, default=None)
        done = sum((r.to or r.state) in DONE for r in self.records.values())
        assert partition.delivery_complete_count == done

    def compare_settled(self, store: Store) -> None:
        """When all is written, the store has every record that is settled as it is."""
        for offset, record in self.records.items():
            persisted = store.records.get(offset)
            if record.state in DONE or (record.state == FREE and record.count):
                assert persisted == (PERSISTED[record.state], record.count), f"{offset} is {record}"
            elif persisted is not None:
                assert persisted[0] == 0, f"{offset} is {record} and persisted as {persisted}"


def sent(change: Change) -> tuple[int, list[StateBatch]]:
    return change.start_offset, list(change.batches)
