"""The memory of a share-partition: state, delivery count and lock of each record, in flat arrays.

The window runs from the start offset to the last record that was acquired, loaded, or found to be
missing. A position is an offset minus the start; it is good until the window is cut. Ranges of
positions are half open.

A record that is *changing* keeps its lock until the change is written. Its state is the one that
it changes to, with the bit CHANGING. What may follow a state is in `MOVES`, and nothing but `move`
changes one.

Batches are the records that were acquired, or loaded, together. `bounds` marks where each begins.
The first one may have begun before the window: `cut_off` says by how many records.

Eleven bytes are kept for a record. Who fills the window limits it.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from typing import Final

from penstock.base.errors import invariant
from penstock.share.types import RecordState

AVAILABLE: Final = int(RecordState.AVAILABLE)
ACQUIRED: Final = int(RecordState.ACQUIRED)
ACKNOWLEDGED: Final = int(RecordState.ACKNOWLEDGED)
ARCHIVED: Final = int(RecordState.ARCHIVED)
UNSEEN: Final = 5
"""Between records that were loaded: nothing is known of it but that it is not done."""
CHANGING: Final = 8
"""Added to the state that a record changes to, until that is written."""

TERMINAL: Final = frozenset({ACKNOWLEDGED, ARCHIVED})
_TARGETS: Final = (AVAILABLE, ACKNOWLEDGED, ARCHIVED)

MOVES: Final = frozenset(
    {
        (AVAILABLE, ACQUIRED),  # acquired again
        (UNSEEN, ACQUIRED),  # read and acquired
        (UNSEEN, AVAILABLE),  # read with its batch, and left for later
        (AVAILABLE, ARCHIVED),  # gone from the log, or of an aborted transaction
        (UNSEEN, ARCHIVED),
        (ACQUIRED, ARCHIVED),  # of an aborted transaction; or the lock ran out too often
        (ACQUIRED, AVAILABLE),  # the lock ran out
        *((ACQUIRED, CHANGING | target) for target in _TARGETS),  # acknowledged, released
        *((CHANGING | target, target) for target in _TARGETS),  # and written
        *((CHANGING | target, ACQUIRED) for target in _TARGETS),  # and not written
    }
)
"""From a state to another."""

NO_LOCK: Final = 0
LOCK_BYTES: Final = 8

_BYTE: Final = tuple(bytes((number,)) for number in range(256))
_OTHER: Final = tuple(re.compile(b"[^" + re.escape(byte) + b"]") for byte in _BYTE)
_OPEN: Final = re.compile(b"[%c%c]" % (AVAILABLE, UNSEEN))
_DONE: Final = re.compile(b"[%c%c]*" % (ACKNOWLEDGED, ARCHIVED))


def run_end(cells: bytes | bytearray, begin: int, end: int) -> int:
    """Where the cells that equal the one at `begin` end."""
    found = _OTHER[cells[begin]].search(cells, begin, end)
    return end if found is None else found.start()


def value_runs(cells: bytes | bytearray, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The runs of equal cells. Cells behind the run that was given last may change meanwhile."""
    while begin < end:
        stop = run_end(cells, begin, end)
        yield begin, stop
        begin = stop


def no_locks(records: int) -> array[int]:
    return array("Q", bytes(LOCK_BYTES * records))


class Window:
    __slots__ = ("bounds", "counts", "cut_off", "locks", "numbers", "start", "states")

    def __init__(self, start: int) -> None:
        self.start = start
        self.states = bytearray()
        self.counts = bytearray()
        self.bounds = bytearray()
        self.locks = array("Q")
        self.cut_off = 0
        """Records of the first batch that lie before the window."""
        self.numbers = [0] * 16
        """How many records are in each state."""

    def __len__(self) -> int:
        return len(self.states)

    @property
    def end(self) -> int:
        """The offset of the last record; one before the start if there is none."""
        return self.start + len(self.states) - 1

    @property
    def held(self) -> int:
        """Records that members hold, or whose change is not written yet."""
        return len(self.states) - self.open - self.done

    @property
    def open(self) -> int:
        """Records that may be acquired."""
        return self.numbers[AVAILABLE] + self.numbers[UNSEEN]

    @property
    def done(self) -> int:
        """Records that are finished for good."""
        return self.numbers[ACKNOWLEDGED] + self.numbers[ARCHIVED]

    @property
    def done_or_about_to_be(self) -> int:
        numbers = self.numbers
        return self.done + numbers[CHANGING | ACKNOWLEDGED] + numbers[CHANGING | ARCHIVED]

    def clip(self, first_offset: int, last_offset: int) -> tuple[int, int]:
        """The part of a range of offsets that lies in the window, which may be empty."""
        begin = max(first_offset - self.start, 0)
        return begin, max(min(last_offset + 1 - self.start, len(self.states)), begin)

    # -- reading -------------------------------------------------------------------------------

    def next_open(self, begin: int, end: int) -> int | None:
        """The first record that may be acquired."""
        found = _OPEN.search(self.states, begin, end)
        return None if found is None else found.start()

    def all_in(self, state: int, begin: int, end: int) -> bool:
        return not self.states[begin:end].strip(_BYTE[state])

    def state_runs(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Runs of one state: where they begin and end, and the state."""
        for first, stop in value_runs(self.states, begin, end):
            yield first, stop, self.states[first]

    def count_runs(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Runs of one delivery count: where they begin and end, and the count."""
        for first, stop in value_runs(self.counts, begin, end):
            yield first, stop, self.counts[first]

    def lock_runs(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Runs of one lock: where they begin and end, and its id."""
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

    # -- changing ------------------------------------------------------------------------------

    def move(self, begin: int, end: int, old: int, new: int) -> None:
        """Records that are all in one state go to another."""
        invariant((old, new) in MOVES, f"a record goes from state {old} to {new}")
        invariant(self.all_in(old, begin, end), f"a record was expected to be in state {old}")
        records = end - begin
        self.states[begin:end] = _BYTE[new] * records
        self.numbers[old] -= records
        self.numbers[new] += records

    def lock(self, begin: int, end: int, lock: int) -> None:
        self.locks[begin:end] = array("Q", (lock,)) * (end - begin)

    def unlock(self, begin: int, end: int) -> array[int]:
        """Takes the locks off and returns them, one for each record."""
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

    def begin_batch(self, position: int) -> None:
        """Another batch begins here; nothing if the window ends before."""
        if position < len(self.bounds):
            self.bounds[position] = 1

    def finished(self) -> int:
        """How many records at the beginning are done."""
        found = _DONE.match(self.states)
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
        for cells in (self.states, self.counts, self.bounds):
            del cells[:records]
        del self.locks[:records]
        self.start += records

    def restart(self, offset: int) -> None:
        """An empty window begins at a later offset."""
        invariant(not self.states and offset >= self.start, "a window with records starts anew")
        self.start = offset

    def invariants(self) -> None:
        size = len(self)
        invariant(size == len(self.counts) == len(self.bounds) == len(self.locks), "arrays differ")
        for state, number in enumerate(self.numbers):
            invariant(number == self.states.count(state), f"wrong number of records in {state}")
        invariant(size == 0 or self.bounds[0] == 1, "the window begins outside of a batch")
        for begin, end, state in self.state_runs(0, size):
            ids = set(self.locks[begin:end])
            if state == ACQUIRED:
                invariant(NO_LOCK not in ids, "an acquired record has no lock")
            elif not state & CHANGING:
                invariant(ids == {NO_LOCK}, "a record that nobody holds has a lock")
            if state != UNSEEN and state not in TERMINAL and state != AVAILABLE:
                invariant(0 not in self.counts[begin:end], "a record is held and never delivered")
