"""One share-partition: a partition as one share group consumes it, at the partition's leader.

A member acquires records, which locks them for a time, and acknowledges them. Each record is
available, acquired, acknowledged or archived. The window (`window.py`) knows it for those between
the start, below which all is done, and the last one that a member was given.

The driver reads the log and hands in what it read, persists changes one after another, hands each
back as `written` or `failed`, and calls `expire` when `next_deadline_ms` has come. What fails
because somebody else leads or the state was reset is not handed back: the driver throws the
share-partition away and loads it anew.

Invariants:
* A record is held by one member at a time, and delivered at most `delivery_count_limit` times.
* A record that is acknowledged or archived is never delivered again.
* A record whose change is not written yet is changing: nobody gets it, nobody can acknowledge it.
  If it is not written, the record is held as before, or free if its lock ran out meanwhile.
* A lock that runs out frees its records at once, whether that can be persisted or not.
* The start moves only over records that are done, and over what is gone from the log.
* The window grows while fewer than `record_locks_max` of its records are unfinished and it spans
  less than WINDOW_SPAN_MAX offsets. What is free inside may be acquired in any case. Kafka counts
  the finished ones, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.base.errors import invariant
from penstock.share import acknowledging
from penstock.share.acquiring import (
    WINDOW_SPAN_MAX,
    Acquiring,
    stretches_and_gaps,
    without,
)
from penstock.share.changes import Change, OffsetRange
from penstock.share.loading import loaded
from penstock.share.locks import Locks
from penstock.share.types import RecordState, ShareState, StateBatch
from penstock.share.values import (
    AckBatch,
    AckType,
    Acquired,
    AcquireMode,
    RecordRun,
    ShareLimits,
)
from penstock.share.window import (
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    CHANGING,
    UNSEEN,
)

__all__ = [
    "AckBatch",
    "AckType",
    "AcquireMode",
    "Acquired",
    "Change",
    "RecordRun",
    "ShareLimits",
    "SharePartition",
    "without",
]


class SharePartition:
    def __init__(self, limits: ShareLimits, state: ShareState, start_offset: int) -> None:
        """`start_offset`: where to begin if the state leaves it to the leader."""
        self.limits = limits
        self.state_epoch = state.state_epoch
        self.timed_out = 0
        """Records whose lock ran out, ever."""
        self._window = loaded(state, start_offset)
        self._locks = Locks()
        self._unsaved: list[OffsetRange] = []
        """Facts that the next change has to persist."""

    # -- what it looks like --------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        return self._window.start

    @property
    def end_offset(self) -> int:
        """The last offset of the window; one before the start if it is empty."""
        return self._window.end

    @property
    def next_fetch_offset(self) -> int:
        """Where the next fetch has to read: at the first record that may be acquired."""
        window = self._window
        position = window.next_open(0, len(window)) if window.open else None
        return window.end + 1 if position is None else window.start + position

    @property
    def delivery_complete_count(self) -> int:
        """Records from the start on that are done, or will be when that is written."""
        return self._window.done_or_about_to_be

    @property
    def has_available(self) -> bool:
        """Whether something within the window may be acquired."""
        return self._window.open > 0

    @property
    def available(self) -> int:
        return self._window.open

    @property
    def held(self) -> int:
        """Records that are acquired or whose change is not written yet."""
        return self._window.held

    @property
    def in_flight(self) -> int:
        """Kafka's number of records in flight: the span of the window."""
        return len(self._window)

    @property
    def in_flight_batches(self) -> int:
        return self._window.bounds.count(1)

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next lock runs out."""
        return self._locks.next_deadline_ms

    def held_by_member(self) -> dict[str, int]:
        return self._locks.records_by_member()

    def describe(self) -> list[RecordRun]:
        """The window for people: runs of records that are alike."""
        window, rows = self._window, []
        for begin, end, state in window.state_runs(0, len(window)):
            name = "UNSEEN" if state == UNSEEN else RecordState(state & ~CHANGING).name
            if state & CHANGING:
                name = f"TO_{name}"
            for first, stop, count in window.count_runs(begin, end):
                for run, run_end, lock in window.lock_runs(first, stop):
                    offsets = window.start + run, window.start + run_end - 1
                    rows.append(RecordRun(*offsets, name, count, self._locks.owner(lock)))
        return rows

    # -- acquiring -----------------------------------------------------------------------------

    def may_acquire(self, member_id: str, members: int) -> bool:
        """Whether a fetch can come to anything, as far as locks go."""
        return self.has_available or self._room() > 0

    def _room(self) -> int:
        """How many records the window may grow by."""
        window = self._window
        if len(window.states) >= WINDOW_SPAN_MAX:
            return 0
        return self.limits.record_locks_max - window.unfinished

    def _quota(self, member_id: str, max_records: int, mode: AcquireMode, members: int) -> int:
        """How many records a member gets: with whole batches at most its part of what is free.
        Those who hold records have theirs already.
        """
        if mode is AcquireMode.RECORD_LIMIT:
            return max_records
        window = self._window
        free = max(self.limits.record_locks_max - window.held, window.open)
        waiting = max(members - self._locks.others(member_id), 1)
        return min(max_records, -(-free // waiting))

    def acquire(
        self,
        member_id: str,
        batches: Sequence[OffsetRange],
        *,
        fetch_offset: int,
        max_records: int,
        batch_size: int,
        mode: AcquireMode,
        members: int,
        now_ms: int,
    ) -> tuple[list[Acquired], Change | None]:
        """Gives a member what it may have of the record batches that were read from `fetch_offset`.

        There may be nothing for it. The change, if any, says what is gone from the log; it is
        there only if nothing was acquired, else it comes with the acknowledgement.
        """
        window = self._window
        if max_records <= 0 or not batches or batches[-1][1] < window.start:
            return [], None
        invariant(fetch_offset <= window.end + 1, "records beyond the next fetch offset were read")
        stretches, gaps = stretches_and_gaps(batches, fetch_offset)
        done = window.done
        for first, last in gaps:
            self._archive_free(first, last)
        archived = window.done > done
        self._advance()
        if not window.states and stretches[0][0] > window.start:
            window.restart(stretches[0][0])
        acquired: list[Acquired] = []
        if (quota := self._quota(member_id, max_records, mode, members)) > 0:
            limit, lock = self.limits.delivery_count_limit, self._locks.next_id
            acquiring = Acquiring(window, lock, limit, batches, quota, batch_size, mode)
            acquiring.run(stretches, self._room())
            acquired = acquiring.acquired
            self._unsaved += acquiring.missing
        if acquired:
            ranges = [(first, last) for first, last, _ in acquired]
            self._locks.add(member_id, now_ms, self.limits.lock_duration_ms, ranges)
        return acquired, self._change([]) if archived and not acquired else None

    def archive(self, ranges: Sequence[OffsetRange], now_ms: int) -> Change | None:
        """Records that nobody is to get, as their transaction was aborted.

        Those that are changing are left; those beyond the window are not known yet.
        """
        window = self._window
        before = window.done
        for first, last in ranges:
            self._archive_free(first, last)
            for begin, end, state in window.state_runs(*window.clip(first, last)):
                if state == ACQUIRED:
                    window.move(begin, end, ACQUIRED, ARCHIVED)
                    self._locks.let_go(window.unlock(begin, end))
                    self._unsaved.append((window.start + begin, window.start + end - 1))
        if window.done == before:
            return None
        self._advance()
        return self._change([])

    def _archive_free(self, first_offset: int, last_offset: int) -> None:
        window = self._window
        for begin, end, state in window.state_runs(*window.clip(first_offset, last_offset)):
            if state in (AVAILABLE, UNSEEN):
                window.move(begin, end, state, ARCHIVED)
                self._unsaved.append((window.start + begin, window.start + end - 1))

    # -- acknowledging, releasing --------------------------------------------------------------

    def acknowledge(
        self, member_id: str, batches: Sequence[AckBatch], now_ms: int
    ) -> Change | None:
        """Raises ApiError, and has changed nothing, if any of the batches is wrong."""
        window, locks = self._window, self._locks
        begun: list[StateBatch] = []
        renewed: list[OffsetRange] = []
        for begin, end, said in acknowledging.checked(
            window, locks, self.limits, member_id, batches
        ):
            if said == AckType.RENEW:
                renewed.append((window.start + begin, window.start + end - 1))
                locks.let_go(window.unlock(begin, end))
                window.lock(begin, end, locks.next_id)
            else:
                self._begin(begun, begin, end, acknowledging.TARGETS[AckType(said)])
        if renewed:
            locks.add(member_id, now_ms, self.limits.lock_duration_ms, renewed)
        return self._change(begun) if begun else None

    def release(self, member_id: str, now_ms: int) -> Change | None:
        """The member is gone: all that it holds is released; how often it was delivered stays."""
        window = self._window
        begun: list[StateBatch] = []
        for lock in self._locks.of(member_id):
            for first, stop in window.locked_by(lock.id, lock.first_offset, lock.last_offset):
                for begin, end, state in window.state_runs(first, stop):
                    if state == ACQUIRED:
                        self._begin(begun, begin, end, AVAILABLE)
                self._locks.let_go(window.unlock(first, stop))
        return self._change(begun) if begun else None

    def expire(self, now_ms: int) -> Change | None:
        """Frees what is under locks that have run out."""
        window = self._window
        freed = False
        for lock in self._locks.run_out(now_ms):
            self.timed_out += lock.left
            for first, stop in window.locked_by(lock.id, lock.first_offset, lock.last_offset):
                self._locks.let_go(window.unlock(first, stop))
                freed |= self._free(first, stop)
        if not freed:
            return None
        self._advance()
        return self._change([])

    def _begin(self, begun: list[StateBatch], begin: int, end: int, target: int) -> None:
        """Records that a member holds are changing from now on."""
        window = self._window
        for first, stop, count in window.count_runs(begin, end):
            state = self._after(count) if target == AVAILABLE else target
            window.move(first, stop, ACQUIRED, CHANGING | state)
            begun.append(StateBatch(window.start + first, window.start + stop - 1, state, count))

    def _after(self, count: int) -> int:
        """The state of a record that was delivered so often and not processed."""
        return ARCHIVED if count >= self.limits.delivery_count_limit else AVAILABLE

    def _free(self, begin: int, end: int) -> bool:
        """Frees at once those of these records that are acquired; whether there were any."""
        window = self._window
        found = False
        for first, stop, state in window.state_runs(begin, end):
            if state != ACQUIRED:
                continue
            found = True
            self._unsaved.append((window.start + first, window.start + stop - 1))
            for run_begin, run_end, count in window.count_runs(first, stop):
                window.move(run_begin, run_end, ACQUIRED, self._after(count))
        return found

    # -- the log and the persister -------------------------------------------------------------

    def log_start_moved(self, log_start_offset: int) -> Change | None:
        """Records below this offset are gone from the log, whoever holds them."""
        window = self._window
        if log_start_offset <= window.start:
            return None
        records = min(log_start_offset - window.start, len(window))
        self._locks.let_go(window.unlock(0, records))
        window.cut(records)
        if len(window) == 0:
            window.restart(log_start_offset)
        self._advance()
        return self._change([])

    def written(self, change: Change, now_ms: int) -> None:
        """The change is persisted: what was begun is done."""
        window = self._window
        for first, last, state, _ in change.begun:
            begin, end = window.clip(first, last)
            if begin < end:
                window.move(begin, end, CHANGING | state, state)
                self._locks.let_go(window.unlock(begin, end))
        self._advance()

    def failed(self, change: Change, now_ms: int) -> Change | None:
        """The change could not be persisted: records are held as before, or free.

        Those that became free are a change of their own.
        """
        window = self._window
        self._unsaved += change.facts
        freed = False
        for first, last, state, _ in change.begun:
            begin, end = window.clip(first, last)
            if begin == end:
                continue
            window.move(begin, end, CHANGING | state, ACQUIRED)
            for run_begin, run_end in window.locked_by(0, first, last):
                freed |= self._free(run_begin, run_end)
        if not freed:
            return None
        self._advance()
        return self._change([])

    def _change(self, begun: list[StateBatch]) -> Change:
        facts, self._unsaved = self._unsaved, []
        return Change(begun, facts, self._window)

    def _advance(self) -> None:
        """The start moves over what is done."""
        if records := self._window.finished():
            self._window.cut(records)

    def invariants(self) -> None:
        window = self._window
        window.invariants()
        invariant(window.finished() == 0, "the start has not moved over what is done")
        counted: dict[int, int] = {}
        for number in window.locks:
            if number:
                counted[number] = counted.get(number, 0) + 1
        invariant(
            counted == {lock.id: lock.left for lock in self._locks},
            "a lock is on more or fewer records than it says",
        )
        holders = {lock.member for lock in self._locks}
        invariant(self._locks.others("") == len(holders), "the members with locks are miscounted")
