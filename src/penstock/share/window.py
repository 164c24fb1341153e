"""The memory of a share-partition: state, delivery count and lock of each record, in flat arrays.

The window runs from the start offset to the last record that was acquired, loaded, or found to be
missing. A position is an offset minus the start; it is good until the window is cut. Ranges of
positions are half open.

A record that is *changing* keeps its lock until the change is written. Its state is the one that
it changes to, with the bit CHANGING. What may follow a state is in `MOVES`, and nothing but `move`
changes one.

`locks` has the lock of a record that is held. A record that nobody holds keeps there what its state
needs: until when it rests (PARKED), or the cause (dead letters).

A long run of records that are done may be *folded*: one cell stands for all of them (`folds.py`).
So a position is an offset minus the start only where nothing is folded; `offset` and `position`
know. A run of positions in one state is a run of offsets in any case.

Batches are the records that were acquired, or loaded, together. `bounds` marks where each begins.
The first one may have begun before the window: `cut_off` says by how many records.

Eleven bytes are kept for a cell. Who fills the window limits it.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from typing import Final

from penstock.base.errors import invariant
from penstock.share.folds import Folds
from penstock.share.types import Cause, RecordState

AVAILABLE: Final = int(RecordState.AVAILABLE)
ACQUIRED: Final = int(RecordState.ACQUIRED)
ACKNOWLEDGED: Final = int(RecordState.ACKNOWLEDGED)
ARCHIVING: Final = int(RecordState.ARCHIVING)
"""That is persisted, and the record waits to be written as a dead letter."""
ARCHIVED: Final = int(RecordState.ARCHIVED)
UNSEEN: Final = 5
"""Between records that were loaded: nothing is known of it but that it is not done."""
PARKED: Final = 6
"""Available from some time on; persisted as available."""
CONDEMNED: Final = 7
"""To be ARCHIVING as soon as that is persisted; nobody holds it."""
TAKEN: Final = 8
"""ARCHIVING, and being written as a dead letter."""
CHANGING: Final = 16
"""Added to the state that a record changes to, until that is written."""

TERMINAL: Final = frozenset({ACKNOWLEDGED, ARCHIVED})
DEAD: Final = frozenset({ARCHIVING, CONDEMNED, TAKEN})
"""To be dead letters, or being written as such."""
_TARGETS: Final = (AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED)

MOVES: Final = frozenset(
    {
        (AVAILABLE, ACQUIRED),  # acquired again
        (UNSEEN, ACQUIRED),  # read and acquired
        (UNSEEN, AVAILABLE),  # read with its batch, and left for later
        (AVAILABLE, ARCHIVED),  # gone from the log, or of an aborted transaction
        (UNSEEN, ARCHIVED),
        (ACQUIRED, ARCHIVED),  # of an aborted transaction; or the lock ran out too often
        (ACQUIRED, AVAILABLE),  # the lock ran out
        (ACQUIRED, PARKED),
        (ACQUIRED, CONDEMNED),
        (CHANGING | AVAILABLE, PARKED),  # released, and written
        (PARKED, AVAILABLE),  # its time has come
        (PARKED, ARCHIVED),
        (CONDEMNED, ARCHIVING),  # written
        (ARCHIVING, TAKEN),  # the writer of dead letters has it
        (TAKEN, ARCHIVING),  # and gives it back
        (TAKEN, ARCHIVED),  # it is written
        *((done, CHANGING | AVAILABLE) for done in (ACKNOWLEDGED, ARCHIVED)),  # revived
        *((CHANGING | AVAILABLE, done) for done in (ACKNOWLEDGED, ARCHIVED)),  # and not written
        *((ACQUIRED, CHANGING | target) for target in _TARGETS),  # acknowledged, released
        *((CHANGING | target, target) for target in _TARGETS),  # and written
        *((CHANGING | target, ACQUIRED) for target in _TARGETS),  # and not written
    }
)
"""From a state to another."""

NO_LOCK: Final = 0
MARK: Final = 1 << 63
"""In the place of a lock: the rest of the number is no lock's id, but a time or a cause."""
LOCK_BYTES: Final = 8
FOLD_RECORDS_MIN: Final = 32
"""Fewer records than these are not worth a fold."""

_CAUSES: Final = frozenset(MARK | cause for cause in Cause)
_NEVER_DELIVERED: Final = TERMINAL | DEAD | {UNSEEN, AVAILABLE, CHANGING | AVAILABLE}
"""In these states a record may be that no member was ever given, or not since it was revived."""

_BYTE: Final = tuple(bytes((number,)) for number in range(256))
_OTHER: Final = tuple(re.compile(b"[^" + re.escape(byte) + b"]") for byte in _BYTE)
_DONE: Final = re.compile(b"[%c%c]+" % (ACKNOWLEDGED, ARCHIVED))


def value_runs(cells: bytes | bytearray, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The runs of equal cells: where they begin and end, and the value.

    The cells of a run that was given may change before the next is asked for.
    """
    if begin == end:
        return
    value = cells[begin]
    if cells[begin:end] == _BYTE[value] * (end - begin):
        yield begin, end, value
        return
    while begin < end:
        value = cells[begin]
        found = _OTHER[value].search(cells, begin, end)
        stop = end if found is None else found.start()
        yield begin, stop, value
        begin = stop


def no_locks(records: int) -> array[int]:
    return array("Q", bytes(LOCK_BYTES * records))


class Window:
    __slots__ = ("bounds", "counts", "cut_off", "folds", "locks", "numbers", "start", "states")

    def __init__(self, start: int) -> None:
        self.start = start
        self.states = bytearray()
        self.counts = bytearray()
        self.bounds = bytearray()
        self.locks = array("Q")
        self.cut_off = 0
        """Records of the first batch that lie before the window."""
        self.numbers = [0] * 2 * CHANGING
        """How many cells are in each state."""
        self.folds: Folds | None = None

    def __len__(self) -> int:
        return len(self.states)

    @property
    def end(self) -> int:
        """The offset of the last record; one before the start if there is none."""
        end = self.start + len(self.states) - 1
        return end if self.folds is None else end + self.folds.hidden

    @property
    def span(self) -> int:
        """How many offsets it has."""
        return self.end + 1 - self.start

    @property
    def open(self) -> int:
        """Records that may be acquired."""
        return self.numbers[AVAILABLE] + self.numbers[UNSEEN]

    @property
    def done(self) -> int:
        """Records that are finished for good."""
        done = self.numbers[ACKNOWLEDGED] + self.numbers[ARCHIVED]
        return done if self.folds is None else done + self.folds.hidden

    @property
    def dead(self) -> int:
        """Records that are to be dead letters, or being written as such."""
        numbers = self.numbers
        return numbers[ARCHIVING] + numbers[CONDEMNED] + numbers[TAKEN]

    @property
    def unfinished(self) -> int:
        """Records that members have to finish, those apart that rest."""
        numbers = self.numbers
        done = numbers[ACKNOWLEDGED] + numbers[ARCHIVED]
        dead = numbers[ARCHIVING] + numbers[CONDEMNED] + numbers[TAKEN]
        return len(self.states) - done - dead - numbers[PARKED]

    @property
    def held(self) -> int:
        """Records that members hold, or whose change is not written yet."""
        return self.unfinished - self.numbers[AVAILABLE] - self.numbers[UNSEEN]

    @property
    def done_or_about_to_be(self) -> int:
        numbers = self.numbers
        return self.done + numbers[CHANGING | ACKNOWLEDGED] + numbers[CHANGING | ARCHIVED]

    def clip(self, first_offset: int, last_offset: int) -> tuple[int, int]:
        """The part of a range of offsets that lies in the window, which may be empty."""
        size = len(self.states)
        if self.folds is None:
            begin, end = first_offset - self.start, last_offset + 1 - self.start
        else:
            begin, end = self.position(first_offset), self.position(last_offset) + 1
        if begin < 0:
            begin = 0
        if end > size:
            end = size
        return (begin, end) if begin < end else (0, 0)

    def offset(self, position: int) -> int:
        """The offset of a record, or where the window ends; the first of a fold."""
        return self.start + position if self.folds is None else self.folds.offset(position)

    def position(self, offset: int) -> int:
        """Where a record is, or would be. All records of a fold are in one place."""
        return offset - self.start if self.folds is None else self.folds.position(offset)

    def is_unfinished(self, offset: int) -> bool:
        begin, end = self.clip(offset, offset)
        return begin < end and self.states[begin] not in TERMINAL

    # -- reading -------------------------------------------------------------------------------

    def next_open(self, begin: int, end: int) -> int | None:
        """The first record that may be acquired."""
        available = self.states.find(AVAILABLE, begin, end) if self.numbers[AVAILABLE] else -1
        unseen = self.states.find(UNSEEN, begin, end) if self.numbers[UNSEEN] else -1
        if available < 0 or unseen < 0:
            found = max(available, unseen)
            return found if found >= 0 else None
        return min(available, unseen)

    def all_in(self, state: int, begin: int, end: int) -> bool:
        return self.states[begin:end] == _BYTE[state] * (end - begin)

    def state_runs(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Runs of one state: where they begin and end, and the state."""
        return value_runs(self.states, begin, end)

    def count_runs(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Runs of one delivery count: where they begin and end, and the count."""
        return value_runs(self.counts, begin, end)

    def lock_runs(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Runs of one lock: where they begin and end, and its id."""
        if begin < end and self.locks[begin:end] == array("Q", (self.locks[begin],)) * (
            end - begin
        ):
            yield begin, end, self.locks[begin]
            return
        first = begin
        for position in range(begin + 1, end + 1):
            if position == end or self.locks[position] != self.locks[first]:
                yield first, position, self.locks[first]
                first = position

    def batch(self, position: int) -> tuple[int, int]:
        """The batch around a record, as far as it lies in the window."""
        end = self.bounds.find(1, position + 1)
        return self.bounds.rfind(1, 0, position + 1), len(self) if end < 0 else end

    def batch_size(self, begin: int, end: int) -> int:
        """How many records a batch had from the beginning."""
        return end - begin + (self.cut_off if begin == 0 else 0)

    def locked_by(self, lock: int, first_offset: int, last_offset: int) -> list[tuple[int, int]]:
        """The records of a range that a lock is on, as runs."""
        begin, end = self.clip(first_offset, last_offset)
        ids = self.locks[begin:end]
        if ids == array("Q", (lock,)) * len(ids):
            return [(begin, end)] if ids else []
        runs = self.lock_runs(begin, end)
        return [(first, stop) for first, stop, number in runs if number == lock]

    def mark_runs(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Runs of one mark: where they begin and end, and its number."""
        for first, stop, number in self.lock_runs(begin, end):
            yield first, stop, number & ~MARK

    def mark_at(self, position: int) -> int:
        return self.locks[position] & ~MARK

    def marked_with(self, begin: int, end: int, number: int) -> Iterator[tuple[int, int]]:
        """The records of a run that have this mark, as runs."""
        for first, stop, mark in self.mark_runs(begin, end):
            if mark == number:
                yield first, stop

    # -- changing ------------------------------------------------------------------------------

    def move(self, begin: int, end: int, old: int, new: int) -> None:
        """Records that are all in one state go to another."""
        records = end - begin
        invariant((old, new) in MOVES, "a record goes to a state that may not follow its own")
        invariant(self.all_in(old, begin, end), "a record is in another state than expected")
        self.states[begin:end] = _BYTE[new] * records
        self.numbers[old] -= records
        self.numbers[new] += records

    def lock(self, begin: int, end: int, lock: int) -> None:
        self.locks[begin:end] = array("Q", (lock,)) * (end - begin)

    def mark(self, begin: int, end: int, number: int) -> None:
        """What there is to know of records that nobody holds: until when they rest, or a cause."""
        self.lock(begin, end, MARK | number)

    def unlock(self, begin: int, end: int) -> array[int]:
        """Takes the locks and marks off and returns them, one for each record."""
        ids = self.locks[begin:end]
        self.locks[begin:end] = no_locks(end - begin)
        return ids

    def set_count(self, begin: int, end: int, count: int) -> None:
        self.counts[begin:end] = _BYTE[count] * (end - begin)

    def append(self, records: int, state: int, count: int) -> int:
        """A batch at the end, with locks on none of its records; returns its position."""
        begin = len(self.states)
        self.states += _BYTE[state] * records
        self.counts += _BYTE[count] * records
        self.bounds += b"\x01" + bytes(records - 1)
        self.locks += no_locks(records)
        self.numbers[state] += records
        return begin

    def append_done(self, offsets: int, state: int, count: int) -> None:
        """Records that are done, at the end, folded if there are many."""
        if offsets >= FOLD_RECORDS_MIN:
            first = self.end + 1
            if self.folds is None:
                self.folds = Folds(self.start)
            self.append(1, state, count)
            self.folds.add(first, first + offsets - 1)
        else:
            self.append(offsets, state, count)

    def append_from(self, other: Window, begin: int, end: int) -> None:
        """Cells of another window, none of them a fold."""
        if begin == end:
            return
        if not self.states and begin == 0:
            self.cut_off = other.cut_off
        place = len(self.states)
        self.states += other.states[begin:end]
        self.counts += other.counts[begin:end]
        self.bounds += other.bounds[begin:end]
        self.bounds[place] = 1
        self.locks += other.locks[begin:end]
        for first, stop, state in other.state_runs(begin, end):
            self.numbers[state] += stop - first

    def begin_batch(self, position: int) -> None:
        """Another batch begins here; nothing if the window ends before."""
        if position < len(self.bounds):
            self.bounds[position] = 1

    def finished(self) -> int:
        """How many records at the beginning are done."""
        states = self.states
        if not states or states[0] not in TERMINAL:
            return 0
        found = _DONE.match(states)
        return found.end() if found else 0

    def cut(self, records: int) -> None:
        """Drops as many from the beginning."""
        if records == 0:
            return
        for begin, end, state in self.state_runs(0, records):
            self.numbers[state] -= end - begin
        if records == len(self) or self.bounds[records]:
            self.cut_off = 0
        else:
            begin = self.bounds.rfind(1, 0, records)
            self.cut_off = records - begin + (self.cut_off if begin == 0 else 0)
            self.bounds[records] = 1
        start = self.start + records if self.folds is None else self.folds.offset(records)
        for cells in (self.states, self.counts, self.bounds):
            del cells[:records]
        del self.locks[:records]
        self.start = start
        if self.folds is not None:
            self._begin_at(start)

    def cut_to(self, offset: int) -> None:
        """Drops what is below an offset, which may be beyond the end."""
        records = min(max(self.position(offset), 0), len(self))
        self.cut(records)
        if offset > self.start:
            # Within a fold, or beyond the end.
            self._begin_at(offset)

    def _begin_at(self, offset: int) -> None:
        self.start = offset
        if self.folds is not None:
            self.folds.cut(offset)
            if not self.folds:
                self.folds = None

    def restart(self, offset: int) -> None:
        """An empty window begins at a later offset."""
        invariant(not self.states and offset >= self.start, "a window with records starts anew")
        self.start = offset
        self.folds = None

    def invariants(self) -> None:
        size = len(self)
        invariant(size == len(self.counts) == len(self.bounds) == len(self.locks), "arrays differ")
        for state, number in enumerate(self.numbers):
            invariant(number == self.states.count(state), f"wrong number of records in {state}")
        invariant(size == 0 or self.bounds[0] == 1, "the window begins outside of a batch")
        if self.folds is not None:
            self.folds.invariants(size)
        for begin, end, state in self.state_runs(0, size):
            ids = set(self.locks[begin:end])
            if state == ACQUIRED:
                invariant(NO_LOCK not in ids, "an acquired record has no lock")
            elif state == PARKED:
                invariant(min(ids) > MARK, "a record rests without an end")
            elif state in DEAD:
                invariant(ids <= _CAUSES, "a record becomes a dead letter for no reason")
            elif not state & CHANGING:
                invariant(ids == {NO_LOCK}, "a record that nobody holds has a lock")
            if state not in _NEVER_DELIVERED:
                invariant(0 not in self.counts[begin:end], "a record is held and never delivered")
