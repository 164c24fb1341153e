"""One share-partition: a partition as one share group consumes it, at the partition's leader.

A member acquires records, which locks them for a time, and acknowledges them. Each record is
available, acquired, acknowledged or archived; or it is archiving, until a dead letter is written of
it, or parked, until it may be delivered again. The window (`window.py`) knows it for those between
the start, below which all is done, and the last one that a member was given.

The driver reads the log and hands in what it read, persists changes one after another, hands each
back as `written` or `failed`, and calls `expire` when `next_deadline_ms` has come. A write takes
all changes that wait, in their order, with the start and the count as they are then. What fails
because somebody else leads or the state was reset is not handed back: the driver throws the
share-partition away and loads it anew.

Invariants:
* A record is held by one member at a time, and delivered at most `delivery_count_limit` times.
* A record that is acknowledged or archived is never delivered again, unless it is revived.
* A record is offered as a dead letter when that is persisted, to one writer at a time, and archived
  when the dead letter is written, not before. Nobody acquires it any more.
* A parked record is available when its time has come, or when another leader loads what is
  persisted: early perhaps, lost never. Records beyond PARKED_RECORDS_MAX are not parked.
* A revived record has never been delivered. To revive records below the start moves it back, and
  what is between is done, in memory and as it is persisted.
* A record whose change is not written yet is changing: nobody gets it, nobody can acknowledge it.
  If it is not written, the record is held as before, or free if its lock ran out meanwhile.
* A lock that runs out frees its records at once, whether that can be persisted or not.
* The start moves only over records that are done, and over what is gone from the log.
* The window grows while fewer than `record_locks_max` of its records are unfinished. Those that are
  parked or archiving do not count, until the window has WINDOW_SPAN_MAX records in memory. What
  is free inside may be acquired in any case. Kafka counts the finished ones, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from penstock.base.errors import invariant
from penstock.share import acknowledging, dead_letters, describing, reviving
from penstock.share.acknowledging import RELEASE, RENEW
from penstock.share.acquiring import (
    NO_LIMIT,
    WINDOW_SPAN_MAX,
    Acquiring,
    stretches_and_gaps,
    without,
)
from penstock.share.changes import Change, OffsetRange
from penstock.share.loading import loaded
from penstock.share.locks import Locks
from penstock.share.parking import Parking
from penstock.share.reviving import OFFSETS_SPAN_MAX, REVIVED_RECORDS_MAX, Revived
from penstock.share.types import ShareState, StateBatch
from penstock.share.values import (
    AckBatch,
    AckType,
    Acquired,
    AcquireMode,
    DeadLetter,
    RecordRun,
    ShareLimits,
)
from penstock.share.window import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    CHANGING,
    CONDEMNED,
    MARK,
    PARKED,
    UNSEEN,
    Window,
)

__all__ = [
    "AckBatch",
    "AckType",
    "AcquireMode",
    "Acquired",
    "Change",
    "DeadLetter",
    "RecordRun",
    "ShareLimits",
    "SharePartition",
    "without",
]

SAVE_AGAIN_MS: Final = 1_000
_FOLD_AGAIN_RECORDS: Final = 10_000
"""Records that have to be done since the window was folded before that is tried again."""


class SharePartition:
    def __init__(self, limits: ShareLimits, state: ShareState, start_offset: int) -> None:
        """`start_offset`: where to begin if the state leaves it to the leader."""
        self.limits = limits
        self.state_epoch = state.state_epoch
        self.timed_out = 0
        """Records whose lock ran out, ever."""
        self._window = loaded(state, start_offset)
        self._locks = Locks()
        self._parking = Parking()
        self._unsaved: list[OffsetRange] = []
        """Facts that the next change has to persist."""
        self._revived = Revived(state)
        self._done_when_folded = 0
        self._save_again_ms: int | None = None
        """When to persist once more what makes records dead letters."""

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
        return window.end + 1 if position is None else window.offset(position)

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
        return self._window.span

    @property
    def in_flight_batches(self) -> int:
        return self._window.bounds.count(1)

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next lock runs out, or `expire` has something else to do."""
        next_ms = self._locks.next_deadline_ms
        for other_ms in (self._parking.next_deadline_ms, self._save_again_ms):
            if other_ms is not None and (next_ms is None or other_ms < next_ms):
                next_ms = other_ms
        return next_ms

    @property
    def parked(self) -> int:
        """Records that rest before another delivery."""
        return self._window.numbers[PARKED]

    @property
    def has_dead_letters(self) -> bool:
        """Whether `dead_letters` has any to give."""
        return self._window.numbers[ARCHIVING] > 0

    @property
    def waiting_dead_letters(self) -> int:
        """Records that a dead letter has to be written of."""
        return self._window.dead

    def held_by_member(self) -> dict[str, int]:
        return self._locks.records_by_member()

    @property
    def revived(self) -> int:
        """Records that were revived and are not done."""
        return self._revived.alive(self._window)

    def describe(self) -> list[RecordRun]:
        """The window for people: runs of records that are alike."""
        return list(self.runs(self.start_offset, self.end_offset))

    def runs(self, first_offset: int, last_offset: int) -> Iterator[RecordRun]:
        """The same within a range of offsets, while nothing changes. A run of what is done may
        reach beyond it.
        """
        window = self._window
        begin, end = window.clip(first_offset, last_offset)
        return describing.rows(window, begin, end, self._locks, self._revived.offsets)

    # -- acquiring -----------------------------------------------------------------------------

    def may_acquire(self, member_id: str, members: int) -> bool:
        """Whether a fetch can come to anything, as far as locks go."""
        return self.has_available or self._room() > 0

    def _room(self) -> int:
        """How many records the window may grow by."""
        window = self._window
        if len(window.states) >= WINDOW_SPAN_MAX:
            window = self._fold()
            if len(window.states) >= WINDOW_SPAN_MAX:
                return 0
        if window.folds is not None and window.span >= OFFSETS_SPAN_MAX:
            return 0
        return self.limits.record_locks_max - window.unfinished

    def _fold(self) -> Window:
        """The window is full: fold what is done, if there is much more of that than last time."""
        window = self._window
        if abs(window.done - self._done_when_folded) >= _FOLD_AGAIN_RECORDS:
            window = self._window = reviving.folded(window)
            self._done_when_folded = window.done
        return window

    def _quota(
        self, member_id: str, max_records: int, mode: AcquireMode, members: int
    ) -> tuple[int, int]:
        """How many records a member gets, and how many more so that a record batch is whole.

        With whole batches it gets at most its part of what is free; those who hold records have
        theirs already. If that part is what limits it, it gets half as much more at most: large
        record batches must not leave others without work.
        """
        if mode is AcquireMode.RECORD_LIMIT:
            return max_records, NO_LIMIT
        window = self._window
        free = max(self.limits.record_locks_max - window.held, window.open)
        waiting = max(members - self._locks.others(member_id), 1)
        part = -(-free // waiting)
        if waiting == 1 or part >= max_records:
            return min(max_records, part), NO_LIMIT
        return part, part // 2

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
        quota, beyond = self._quota(member_id, max_records, mode, members)
        if quota > 0:
            limit, lock = self.limits.delivery_count_limit, self._locks.next_id
            room = self._room()  # this may fold the window, which makes another of it
            acquiring = Acquiring(
                self._window, lock, limit, batches, quota, beyond, batch_size, mode
            )
            acquiring.run(stretches, room)
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
                    self._unsaved.append((window.offset(begin), window.offset(end) - 1))
        if window.done == before:
            return None
        self._advance()
        return self._change([])

    def _archive_free(self, first_offset: int, last_offset: int) -> None:
        window = self._window
        for begin, end, state in window.state_runs(*window.clip(first_offset, last_offset)):
            if state in (AVAILABLE, UNSEEN, PARKED):
                window.move(begin, end, state, ARCHIVED)
                window.unlock(begin, end)
                self._unsaved.append((window.offset(begin), window.offset(end) - 1))

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
            if said == RENEW:
                renewed.append((window.offset(begin), window.offset(end) - 1))
                locks.let_go(window.unlock(begin, end))
                window.lock(begin, end, locks.next_id)
            else:
                self._begin(begun, begin, end, said)
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
                        self._begin(begun, begin, end, RELEASE)
                self._locks.let_go(window.unlock(first, stop))
        return self._change(begun) if begun else None

    def expire(self, now_ms: int) -> Change | None:
        """Frees what is under locks that have run out, and what has rested long enough."""
        window = self._window
        for begin, end in self._parking.due(window, now_ms):
            window.move(begin, end, PARKED, AVAILABLE)
            window.unlock(begin, end)
        freed = self._saves_again(now_ms)
        for lock in self._locks.run_out(now_ms):
            self.timed_out += lock.left
            for first, stop in window.locked_by(lock.id, lock.first_offset, lock.last_offset):
                self._locks.let_go(window.unlock(first, stop))
                freed |= self._free(first, stop, now_ms)
        if not freed:
            return None
        self._advance()
        return self._change([])

    def _saves_again(self, now_ms: int) -> bool:
        """Whether it is time to persist what could not be."""
        is_due = self._save_again_ms is not None and self._save_again_ms <= now_ms
        if is_due:
            self._save_again_ms = None
        return is_due and bool(self._unsaved)

    def _begin(self, begun: list[StateBatch], begin: int, end: int, said: int) -> None:
        """Records that a member holds are changing from now on."""
        window = self._window
        for first, stop, count in window.count_runs(begin, end):
            state, cause = acknowledging.outcome(self.limits, said, count)
            offset = window.offset(first)
            window.move(first, stop, ACQUIRED, CHANGING | state)
            begun.append(StateBatch(offset, offset + stop - first - 1, state, count, cause))

    def _free(self, begin: int, end: int, now_ms: int) -> bool:
        """Frees at once those of these records that are acquired; whether there were any."""
        window = self._window
        found = False
        for first, stop, state in window.state_runs(begin, end):
            if state != ACQUIRED:
                continue
            found = True
            self._unsaved.append((window.offset(first), window.offset(stop) - 1))
            for run, run_end, count in window.count_runs(first, stop):
                after, cause = acknowledging.outcome(self.limits, RELEASE, count)
                if after == AVAILABLE:
                    self._rest(run, run_end, ACQUIRED, count, now_ms)
                elif after == ARCHIVING:
                    window.move(run, run_end, ACQUIRED, CONDEMNED)
                    window.mark(run, run_end, cause)
                else:
                    window.move(run, run_end, ACQUIRED, after)
        return found

    def _rest(self, begin: int, end: int, old: int, count: int, now_ms: int) -> None:
        """Released records are parked, or available at once."""
        retry, window = self.limits.retry, self._window
        if retry is not None and count > 0:
            free_at_ms = now_ms + retry.pause_ms(count)
            if self._parking.park(window, begin, end, old, free_at_ms):
                return
        window.move(begin, end, old, AVAILABLE)

    # -- dead letters --------------------------------------------------------------------------

    def dead_letters(self, records_max: int) -> list[DeadLetter]:
        """The oldest records that wait to be written as dead letters. They are the caller's, until
        it says what became of them.
        """
        return dead_letters.take(self._window, records_max)

    def dead_letters_written(self, ranges: Sequence[OffsetRange], now_ms: int) -> Change | None:
        """Dead letters have been written of these records, which were taken."""
        archived = dead_letters.archive(self._window, ranges)
        if not archived:
            return None
        self._unsaved += archived
        self._advance()
        return self._change([])

    def dead_letters_failed(self, ranges: Sequence[OffsetRange]) -> None:
        """They could not be written, and are offered again."""
        dead_letters.give_back(self._window, ranges)

    # -- reviving ------------------------------------------------------------------------------

    def revivable(self, ranges: Sequence[OffsetRange]) -> int:
        """How many records `revive` would revive; ApiError if that is more than can be."""
        found = self._revived.revivable(self._window, ranges)
        return sum(last - first + 1 for first, last in found)

    def revive(self, ranges: Sequence[OffsetRange]) -> Change | None:
        """What is done of these records is to be delivered anew, to this group alone, as if it had
        never been. It is available when that is written; the rest stays as it is.
        """
        found = self._revived.revivable(self._window, ranges)
        if not found:
            return None
        self._revived.add(found)
        self._window, begun, undo, around = reviving.begin(self._window, found)
        change = self._change(begun, around)
        change.undo = undo
        return change

    # -- the log and the persister -------------------------------------------------------------

    def log_start_moved(self, log_start_offset: int) -> Change | None:
        """Records below this offset are gone from the log, whoever holds them."""
        window = self._window
        if log_start_offset <= window.start:
            return None
        _, end = window.clip(window.start, log_start_offset - 1)
        self._locks.let_go(window.unlock(0, end))
        window.cut_to(log_start_offset)
        self._advance()
        return self._change([])

    def written(self, change: Change, now_ms: int) -> None:
        """The change is persisted: what was begun is done."""
        window = self._window
        for first, last, state, count, cause, _ in change.begun:
            begin, end = window.clip(first, last)
            if begin < end:
                self._locks.let_go(window.unlock(begin, end))
                if state == AVAILABLE:
                    self._rest(begin, end, CHANGING | state, count, now_ms)
                    continue
                window.move(begin, end, CHANGING | state, state)
                if state == ARCHIVING:
                    window.mark(begin, end, cause)
        for first, last in change.condemned:
            for begin, end, state in window.state_runs(*window.clip(first, last)):
                if state == CONDEMNED:
                    window.move(begin, end, CONDEMNED, ARCHIVING)
        self._advance()

    def failed(self, change: Change, now_ms: int) -> Change | None:
        """The change could not be persisted: records are held as before, or free.

        Those that became free are a change of their own.
        """
        window = self._window
        self._unsaved += change.facts
        if change.condemned:
            # Nobody writes a dead letter before; there may be no other change to take it along.
            self._save_again_ms = now_ms + SAVE_AGAIN_MS
        if change.undo:
            self._unsaved += reviving.undo(window, change.undo)
            self._advance()
            return None
        freed = False
        for first, last, state, *_ in change.begun:
            begin, end = window.clip(first, last)
            if begin == end:
                continue
            window.move(begin, end, CHANGING | state, ACQUIRED)
            for run_begin, run_end in window.locked_by(0, first, last):
                freed |= self._free(run_begin, run_end, now_ms)
        if not freed:
            return None
        self._advance()
        return self._change([])

    def _change(self, begun: list[StateBatch], around: list[StateBatch] | None = None) -> Change:
        facts, self._unsaved = self._unsaved, []
        return Change(begun, facts, self._window, around)

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
            if number and not number & MARK:
                counted[number] = counted.get(number, 0) + 1
        invariant(
            counted == {lock.id: lock.left for lock in self._locks},
            "a lock is on more or fewer records than it says",
        )
        self._parking.invariants(window)
        invariant(self._revived.alive(window) <= REVIVED_RECORDS_MAX, "too many were revived")
        holders = {lock.member for lock in self._locks}
        invariant(self._locks.others("") == len(holders), "the members with locks are miscounted")
