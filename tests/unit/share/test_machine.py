"""A share-partition at random, against the model: members, locks, lost writes, crashes, compaction.

A write takes all changes that wait, as the driver's do, and there is one at a time; any of them
may fail, and the leader may crash at any time, which leaves it with what was persisted. Some groups
have dead letters, some have records rest, and anybody may revive what is done.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.base.errors import ApiError
from penstock.share import reviving, window
from penstock.share.changes import Change
from penstock.share.partition import (
    SAVE_AGAIN_MS,
    AckBatch,
    AcquireMode,
    ShareLimits,
    SharePartition,
)
from penstock.share.types import StateBatch
from penstock.share.values import BackoffType, RetryBackoff
from penstock.share.window import FOLD_RECORDS_MIN
from unit.share.model import RENEW, Begun, Model, Range, Store

MEMBERS = st.sampled_from(["a", "b", "c"])
DURATION_MS = 100
RETRIES = st.builds(
    RetryBackoff,
    st.sampled_from(BackoffType),
    st.integers(1, 60),
    st.sampled_from([1, 2.5]),
    st.just(150),
)


def fold_from(records: int) -> None:
    for module in (reviving, window):
        vars(module)["FOLD_RECORDS_MIN"] = records


class Sent(NamedTuple):
    """A write that is under way."""

    start: int
    batches: list[StateBatch]
    changes: list[tuple[Change, Begun]]


class Read(NamedTuple):
    """Record batches that the driver has read and not handed in yet."""

    fetch_offset: int
    batches: list[Range]


class SharePartitionAgainstModel(RuleBasedStateMachine):
    @initialize(
        locks_max=st.integers(1, 30),
        limit=st.integers(2, 6),
        renew=st.booleans(),
        start=st.integers(0, 9),
        dead_letters=st.booleans(),
        retry=st.none() | RETRIES,
        folds=st.sampled_from([2, 5, FOLD_RECORDS_MIN]),
    )
    def begin(
        self,
        locks_max: int,
        limit: int,
        renew: bool,
        start: int,
        dead_letters: bool,
        retry: RetryBackoff | None,
        folds: int,
    ) -> None:
        fold_from(folds)
        self.limits = ShareLimits(locks_max, limit, DURATION_MS, renew, dead_letters, retry)
        self.store = Store(start)
        self.partition = SharePartition(self.limits, self.store.state(), start)
        self.model = Model(self.limits, start)
        self.now = 0
        self.log: list[Range] = [(0, 3), (4, 9)]
        self.log_end = 10
        self.log_start = 0
        self.read: Read | None = None
        self.queue: list[tuple[Change, Begun]] = []
        self.sent: Sent | None = None

    def teardown(self) -> None:
        fold_from(FOLD_RECORDS_MIN)

    def changed(self, change: Change | None, begun: Begun | None = None) -> None:
        if change is not None:
            assert change.delivery_complete_count == self.partition.delivery_complete_count
            self.queue.append((change, begun or Begun({})))

    @rule()
    def fold(self) -> None:
        """As when the window is full."""
        self.partition._window = reviving.folded(self.partition._window)

    # -- the log -------------------------------------------------------------------------------

    @rule(records=st.integers(1, 8), gap=st.sampled_from([0, 0, 0, 1, 3]))
    def produce(self, records: int, gap: int) -> None:
        base = self.log_end + gap
        self.log.append((base, base + records - 1))
        self.log_end = base + records

    @precondition(lambda self: len(self.log) > 1)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        del self.log[data.draw(st.integers(0, len(self.log) - 2))]

    @precondition(lambda self: len(self.log) > 1)
    @rule(batches=st.integers(1, 2), inside=st.integers(0, 3))
    def delete(self, batches: int, inside: int) -> None:
        del self.log[: min(batches, len(self.log) - 1)]
        log_start = self.log[0][0] + min(inside, self.log[0][1] - self.log[0][0])
        self.log_start = log_start
        moved = log_start > self.partition.start_offset
        change = self.partition.log_start_moved(log_start)
        assert (change is not None) == moved
        if moved:
            self.model.log_start_moved(log_start)
        self.changed(change)

    # -- members -------------------------------------------------------------------------------

    @rule(batches=st.integers(1, 6))
    def fetch(self, batches: int) -> None:
        offset = self.partition.next_fetch_offset
        found = [batch for batch in self.log if batch[1] >= offset]
        if found:
            self.read = Read(offset, found[:batches])

    @precondition(lambda self: self.read is not None)
    @rule(
        member=MEMBERS,
        max_records=st.integers(1, 12),
        batch_size=st.integers(1, 12),
        mode=st.sampled_from(AcquireMode),
        members=st.integers(1, 4),
    )
    def acquire(
        self, member: str, max_records: int, batch_size: int, mode: AcquireMode, members: int
    ) -> None:
        assert self.read is not None
        fetch_offset, batches = self.read
        self.read = None
        partition = self.partition
        could_before = partition.may_acquire(member, members)
        end = partition.end_offset
        given, change = partition.acquire(
            member,
            batches,
            fetch_offset=fetch_offset,
            max_records=max_records,
            batch_size=batch_size,
            mode=mode,
            members=members,
            now_ms=self.now,
        )
        if batches[-1][1] < self.model.start:
            assert not given
            return
        assert could_before or not given
        assert change is None or not given
        quota = max_records
        if mode is AcquireMode.BATCH_OPTIMIZED and members == 1:
            quota = min(quota, max(self.limits.record_locks_max, end - self.model.start + 1))
        self.model.acquire(member, batches, fetch_offset, quota, mode, given, self.now)
        self.changed(change)

    @rule(data=st.data(), member=MEMBERS, per_offset=st.booleans())
    def acknowledge(self, data: st.DataObject, member: str, per_offset: bool) -> None:
        """Mostly what the member holds; sometimes anything."""
        types = st.sampled_from([0, 1, 1, 1, 2, 2, 3, RENEW])
        rows = [row for row in self.partition.describe() if row.member_id == member]
        batches = []
        if rows and data.draw(st.integers(0, 9)):
            chosen = data.draw(st.lists(st.sampled_from(rows), max_size=3, unique=True))
            for first, last, *_ in sorted(chosen):
                part = data.draw(st.integers(first, last)), data.draw(st.integers(first, last))
                batches.append((min(part), max(part)))
        else:
            low, high = self.model.start - 3, self.model.end + 3
            span = st.tuples(st.integers(low, high), st.integers(low, high))
            batches = data.draw(st.lists(span, min_size=1, max_size=2))
        said = []
        for first, last in batches:
            number = last - first + 1 if per_offset and last >= first else 1
            said.append(AckBatch(first, last, [data.draw(types) for _ in range(number)]))
        self.say(member, said)

    def say(self, member: str, said: list[AckBatch]) -> None:
        refused = self.model.may_acknowledge(member, said)
        if refused is not None:
            with pytest.raises(ApiError, match=refused):
                self.partition.acknowledge(member, said, self.now)
            return
        begun = self.model.acknowledge(said, self.now)
        change = self.partition.acknowledge(member, said, self.now)
        assert (change is not None) == bool(begun.targets)
        self.changed(change, begun)

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        begun = self.model.release_all(member)
        change = self.partition.release(member, self.now)
        assert (change is not None) == bool(begun.targets)
        self.changed(change, begun)

    @rule(ms=st.integers(1, 70) | st.just(SAVE_AGAIN_MS))
    def wait(self, ms: int) -> None:
        self.now += ms
        freed = self.model.expire(self.now)
        again_ms = self.partition._save_again_ms
        if again_ms is not None and again_ms <= self.now:
            freed |= bool(self.partition._unsaved)
        change = self.partition.expire(self.now)
        assert (change is not None) == freed
        self.changed(change)

    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        """Some record batches turn out to be of aborted transactions."""
        ranges = sorted(data.draw(st.lists(st.sampled_from(self.log), max_size=2, unique=True)))
        change = self.partition.archive(ranges, self.now)
        assert (change is not None) == self.model.archive(ranges)
        self.changed(change)

    # -- the persister -------------------------------------------------------------------------

    @precondition(lambda self: self.queue and self.sent is None)
    @rule()
    def send(self) -> None:
        changes, self.queue = self.queue, []
        batches = [batch for change, _ in changes for batch in change.batches]
        self.sent = Sent(self.partition.start_offset, batches, changes)

    @precondition(lambda self: self.sent is not None)
    @rule()
    def write(self) -> None:
        assert self.sent is not None
        start, batches, changes = self.sent
        self.sent = None
        self.store.write(start, batches)
        for change, begun in changes:
            self.partition.written(change, self.now)
            self.model.written(change, begun, self.now)

    @precondition(lambda self: self.sent is not None)
    @rule()
    def fail(self) -> None:
        assert self.sent is not None
        changes = self.sent.changes
        self.sent = None
        for change, begun in changes:
            again = self.partition.failed(change, self.now)
            assert (again is not None) == self.model.failed(begun, self.now)
            self.changed(again)

    # -- dead letters, and what is revived -----------------------------------------------------

    @rule(records_max=st.integers(1, 5))
    def take_dead_letters(self, records_max: int) -> None:
        found = {
            offset: (letter.delivery_count, int(letter.cause))
            for letter in self.partition.dead_letters(records_max)
            for offset in range(letter.first_offset, letter.last_offset + 1)
        }
        assert found == self.model.take(records_max)

    @precondition(lambda self: self.model.taken)
    @rule(data=st.data(), succeeds=st.booleans())
    def write_dead_letters(self, data: st.DataObject, succeeds: bool) -> None:
        offsets = sorted(data.draw(st.sets(st.sampled_from(self.model.taken), min_size=1)))
        ranges = [(offset, offset) for offset in offsets]
        if succeeds:
            change = self.partition.dead_letters_written(ranges, self.now)
            assert change is not None
            self.model.dead_letters_written(offsets)
            self.changed(change)
        else:
            self.partition.dead_letters_failed(ranges)
            for offset in offsets:
                self.model.records[offset].taken = False

    @rule(data=st.data())
    def revive(self, data: st.DataObject) -> None:
        span = st.tuples(st.integers(self.log_start, self.log_end + 2), st.integers(0, 3))
        drawn = data.draw(st.lists(span, min_size=1, max_size=3))
        ranges = [(first, first + more) for first, more in drawn]
        expected = self.partition.revivable(ranges)
        change = self.partition.revive(ranges)
        below = [(a, min(b, self.model.start - 1)) for a, b in ranges if a < self.model.start]
        low = min((a for a, _ in below), default=self.model.start)
        begun = self.model.revive([(low, low)] * (low < self.model.start) + ranges)
        assert (change is not None) == bool(begun.targets)
        assert expected == len(begun.targets)
        self.changed(change, begun)

    @rule(settled=st.booleans())
    def crash(self, settled: bool) -> None:
        if settled:
            if self.sent is not None:
                self.write()
            # What is gone from the log may wait for the next change.
            self.changed(self.partition._change([]))
            self.send()
            self.write()
            self.model.compare_settled(self.store)
        self.queue.clear()
        self.sent = None
        self.read = None
        self.partition = SharePartition(self.limits, self.store.state(), -1)
        self.model.reloaded(self.store)

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "model"):
            self.model.compare(self.partition)


TestSharePartition = SharePartitionAgainstModel.TestCase
TestSharePartition.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
