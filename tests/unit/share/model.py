"""A share-partition remembered offset by offset, as naively as it goes, and the store behind it.

The model is told what a member was given and judges whether that may be; what everything else
comes to it works out itself. What is persisted is put together as the coordinator does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.coordinator.share_state.batches import combined
from penstock.share.changes import Change
from penstock.share.parking import TICK_MS
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
PARKED, CONDEMNED, ARCHIVING = "PARKED", "TO_ARCHIVING", "ARCHIVING"
DONE = ("ACKNOWLEDGED", "ARCHIVED")
PERSISTED = {FREE: 0, "ACKNOWLEDGED": 2, ARCHIVING: 3, "ARCHIVED": 4}
BY_TYPE = {0: "ARCHIVED", 1: "ACKNOWLEDGED", 2: FREE}
RELEASE, REJECT, RENEW = 2, 3, 4
NONE, REJECTED, LIMIT = 0, 1, 2


@dataclass
class Record:
    state: str = UNSEEN
    count: int = 0
    owner: str = ""
    deadline: int | None = None
    to: str = ""
    """The state that it changes to."""
    cause: int = NONE
    free_at: int = 0
    taken: bool = False
    revived: bool = False

    def shown(self) -> tuple[str, int, str, int, int, bool]:
        state = f"TO_{self.to}" if self.to else self.state
        cause = self.cause if state in (ARCHIVING, CONDEMNED) and not self.to else NONE
        revived = self.revived and (bool(self.to) or self.state not in DONE)
        free_at = self.free_at if self.deadline is None else self.deadline
        return state, self.count, self.owner, cause, free_at, revived


class Store:
    """What is persisted, by offset."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.batches: list[StateBatch] = []

    def write(self, start: int, batches: Sequence[StateBatch]) -> None:
        revives = any(batch.replaces for batch in batches)
        assert start >= self.start or revives, "the persisted start goes back"
        self.start = start
        self.batches = combined(self.batches, batches, start)

    @property
    def records(self) -> dict[int, tuple[int, int, int]]:
        return {
            offset: (state, count, cause)
            for first, last, state, count, cause, _ in self.batches
            for offset in range(first, last + 1)
        }

    def state(self) -> ShareState:
        return ShareState(1, self.start, 0, self.batches)


class Begun(NamedTuple):
    """What a change was about: offset and the state to go to, and what it was if it is revived."""

    targets: dict[int, str]
    undo: dict[int, tuple[str, int]] = {}  # noqa: RUF012


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
        apart = (*DONE, PARKED, ARCHIVING, CONDEMNED)
        return sum(r.state not in apart or bool(r.to) for r in self.records.values())

    def advance(self) -> None:
        while self.records:
            first = self.records[self.start]
            if first.to or first.state not in DONE:
                return
            del self.records[self.start]
            self.start += 1

    def target(self, record: Record, said: int) -> str:
        """Where an acknowledgement leads; the cause is noted."""
        is_last = record.count >= self.limits.delivery_count_limit
        if said == REJECT or (said == RELEASE and is_last):
            record.cause = REJECTED if said == REJECT else LIMIT
            return ARCHIVING if self.limits.dead_letters else "ARCHIVED"
        return BY_TYPE[said]

    def rest(self, record: Record, now: int) -> None:
        """It is free, now or later."""
        record.state = FREE
        if self.limits.retry is not None and record.count:
            at = now + self.limits.retry.pause_ms(record.count)
            record.state, record.free_at = PARKED, -(-at // TICK_MS) * TICK_MS

    def free(self, record: Record, now: int) -> None:
        """Its lock has run out."""
        record.state = self.target(record, RELEASE)
        if record.state == FREE:
            self.rest(record, now)
        elif record.state == ARCHIVING:
            record.state = CONDEMNED

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
        for record in self.some(missing, FREE, UNSEEN, PARKED):
            record.state, record.free_at = "ARCHIVED", 0
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
                self.give(member, offset, count, missing, now)
        if mode is AcquireMode.RECORD_LIMIT and unseen:
            self.leave_rest(batches, given[-1].last_offset, grown=given[-1].last_offset > end)

    def is_new(self, offset: int) -> bool:
        return offset not in self.records or self.records[offset].state == UNSEEN

    def give(self, member: str, offset: int, count: int, missing: set[int], now: int) -> None:
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
        self.records[offset] = Record(HELD, count, member, deadline, revived=record.revived)

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
                    record.to = self.target(record, said)
                    begun.targets[offset] = record.to
        return begun

    def release_all(self, member: str) -> Begun:
        begun = Begun({})
        for offset, record in self.records.items():
            if record.owner == member:
                record.owner, record.deadline = "", None
                if not record.to:
                    record.to = self.target(record, RELEASE)
                    begun.targets[offset] = record.to
        return begun

    def expire(self, now: int) -> bool:
        freed = False
        for record in self.records.values():
            if record.state == PARKED and record.free_at <= now:
                record.state, record.free_at = FREE, 0
            if record.deadline is not None and record.deadline <= now:
                record.owner, record.deadline = "", None
                if not record.to:
                    self.free(record, now)
                    freed = True
        self.advance()
        return freed

    def archive(self, ranges: list[Range]) -> bool:
        offsets = (o for a, b in ranges for o in range(a, b + 1))
        records = self.some(offsets, FREE, UNSEEN, HELD, PARKED)
        for record in records:
            record.state, record.owner, record.deadline = "ARCHIVED", "", None
            record.free_at = 0
        self.advance()
        return bool(records)

    def log_start_moved(self, offset: int) -> None:
        self.records = {o: r for o, r in self.records.items() if o >= offset}
        self.start = max(self.start, offset)
        self.advance()

    # -- dead letters, and what is revived -----------------------------------------------------

    def take(self, records_max: int) -> dict[int, tuple[int, int]]:
        """Offsets of what is to be written, with their counts and causes."""
        found = [o for o, r in sorted(self.records.items()) if r.state == ARCHIVING and not r.taken]
        for offset in found[:records_max]:
            self.records[offset].taken = True
        return {o: (self.records[o].count, self.records[o].cause) for o in found[:records_max]}

    @property
    def taken(self) -> list[int]:
        return [offset for offset, record in self.records.items() if record.taken]

    def dead_letters_written(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            record = self.records[offset]
            record.state, record.taken = "ARCHIVED", False
        self.advance()

    def revive(self, ranges: list[Range]) -> Begun:
        begun = Begun({}, {})
        low = min((first for first, _ in ranges), default=self.start)
        if low < self.start:
            between = {o: Record("ACKNOWLEDGED") for o in range(low, self.start)}
            self.records = between | self.records
            self.start = low
        for record_range in ranges:
            for offset in range(record_range[0], record_range[1] + 1):
                record = self.records.get(offset)
                if record is not None and not record.to and record.state in DONE:
                    begun.undo[offset] = record.state, record.count
                    begun.targets[offset] = record.to = FREE
                    record.count, record.revived = 0, True
        self.advance()
        return begun

    # -- the persister -------------------------------------------------------------------------

    def written(self, change: Change, begun: Begun, now: int) -> None:
        for offset, target in begun.targets.items():
            if target == "ACKNOWLEDGED":
                self.acked.add(offset)
            if offset in begun.undo:
                self.acked.discard(offset)
            if offset in self.records:
                old = self.records[offset]
                assert old.to == target
                new = Record(target, old.count, cause=old.cause, revived=old.revived)
                self.records[offset] = new
                if target == FREE:
                    self.rest(new, now)
        for first, last, state, *_ in change.batches:
            if state == PERSISTED[ARCHIVING]:
                for record in self.some(range(first, last + 1), CONDEMNED):
                    record.state = ARCHIVING
        self.advance()

    def failed(self, begun: Begun, now: int) -> bool:
        """Whether some of it is free now."""
        freed = False
        for offset in begun.targets:
            if record := self.records.get(offset):
                record.to = ""
                if offset in begun.undo:
                    record.state, record.count = begun.undo[offset]
                    record.revived = False
                elif not record.owner:
                    self.free(record, now)
                    freed = True
        self.advance()
        return freed

    def reloaded(self, store: Store) -> None:
        """As it is after a crash: what was not persisted is not known any more."""
        self.start = store.start
        names = {number: name for name, number in PERSISTED.items()}
        end = max(store.records, default=store.start - 1)
        self.records = {o: Record() for o in range(store.start, end + 1)}
        for offset, (state, count, cause) in store.records.items():
            revived = names[state] == FREE and count == 0
            self.records[offset] = Record(names[state], count, cause=cause, revived=revived)
        self.advance()

    # -- comparing -----------------------------------------------------------------------------

    def compare(self, partition: SharePartition) -> None:
        partition.invariants()
        shown = {}
        for row in partition.describe():
            rest = row.cause, row.free_at_ms, row.revived
            for offset in range(row.first_offset, row.last_offset + 1):
                shown[offset] = row.state, row.delivery_count, row.member_id, *rest
        assert shown == {o: r.shown() for o, r in self.records.items()}
        assert (partition.start_offset, partition.end_offset) == (self.start, self.end)
        open_ = [o for o, r in self.records.items() if not r.to and r.state in (FREE, UNSEEN)]
        assert partition.next_fetch_offset == min(open_, default=self.end + 1)
        assert partition.has_available == bool(open_)
        deadlines = [r.deadline for r in self.records.values() if r.deadline is not None]
        deadlines += [r.free_at for r in self.records.values() if r.free_at]
        if deadlines:  # records that rested and are gone may be looked for in vain
            assert partition.next_deadline_ms is not None
            assert partition.next_deadline_ms <= min(deadlines)
        waiting = sum(r.state in (ARCHIVING, CONDEMNED) for r in self.records.values())
        assert partition.waiting_dead_letters == waiting
        done = sum((r.to or r.state) in DONE for r in self.records.values())
        assert partition.delivery_complete_count == done

    def compare_settled(self, store: Store) -> None:
        """When all is written, the store has every record that is settled as it is."""
        for offset, record in self.records.items():
            persisted = store.records.get(offset)
            if record.state in (*DONE, ARCHIVING, PARKED) or (
                record.state == FREE and (record.count or record.revived)
            ):
                state = FREE if record.state == PARKED else record.state
                wanted = PERSISTED[state], record.count
                assert persisted is not None, f"{offset} is {record}, and not persisted"
                assert persisted[:2] == wanted, f"{offset} is {record}, persisted as {persisted}"
                cause = record.cause if state == ARCHIVING else NONE
                assert persisted[2] == cause, f"{offset} is {record}, persisted as {persisted}"
            elif persisted is not None:
                assert persisted[0] == 0, f"{offset} is {record} and persisted as {persisted}"
