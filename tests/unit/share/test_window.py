"""The memory of a share-partition: moves, batches, runs, and what is cut from its beginning."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import InvariantBroken
from penstock.share.window import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    CHANGING,
    MOVES,
    UNSEEN,
    Window,
    value_runs,
)

STATES = sorted({state for move in MOVES for state in move})


def window(*batches: tuple[int, int], start: int = 10) -> Window:
    """With batches of so many records in that state."""
    made = Window(start)
    for records, state in batches:
        position = made.append(records, state, 1)
        if state == ACQUIRED:
            made.lock(position, position + records, 7)
    made.invariants()
    return made


@pytest.mark.parametrize("old", STATES)
@pytest.mark.parametrize("new", STATES)
def test_a_record_moves_only_along_the_table(old: int, new: int) -> None:
    made = window((3, AVAILABLE))
    made.states[:] = bytes([old]) * 3
    made.numbers[AVAILABLE] = 0
    made.numbers[old] = 3
    if (old, new) in MOVES:
        made.move(0, 2, old, new)
        assert bytes(made.states) == bytes([new, new, old])
        assert made.numbers[new] == 2
    else:
        with pytest.raises(InvariantBroken):
            made.move(0, 2, old, new)


def test_what_is_done_stays_done() -> None:
    assert not [move for move in MOVES if move[0] in (ACKNOWLEDGED, ARCHIVED)]


def test_records_that_move_are_all_in_the_same_state() -> None:
    made = window((2, AVAILABLE), (2, ARCHIVED))
    with pytest.raises(InvariantBroken):
        made.move(0, 3, AVAILABLE, ACQUIRED)


def test_the_first_batch_keeps_its_size() -> None:
    made = window((6, AVAILABLE), (4, AVAILABLE))
    made.cut(2)
    assert made.batch(1) == (0, 4)
    assert made.batch_size(0, 4) == 6
    made.cut(1)
    assert made.batch_size(*made.batch(0)) == 6
    assert made.batch_size(*made.batch(3)) == 4
    made.cut(3)
    assert made.batch_size(*made.batch(0)) == 4
    assert made.start == 16
    made.cut(4)
    made.append(3, AVAILABLE, 0)
    assert made.batch_size(*made.batch(2)) == 3
    made.invariants()


def test_the_next_open_record() -> None:
    made = window((2, ACQUIRED), (2, UNSEEN), (1, ARCHIVED), (2, AVAILABLE))
    assert made.next_open(0, 7) == 2
    assert made.next_open(4, 7) == 5
    assert made.next_open(0, 2) is None
    assert made.next_open(6, 6) is None
    made.move(2, 4, UNSEEN, AVAILABLE)
    assert made.next_open(3, 7) == 3


def test_ranges_of_offsets_are_clipped() -> None:
    made = window((5, AVAILABLE))
    assert made.clip(0, 100) == (0, 5)
    assert made.clip(11, 12) == (1, 3)
    assert made.clip(8, 10) == (0, 1)
    for begin, end in (made.clip(0, 9), made.clip(15, 20)):
        assert begin == end


def test_who_is_counted_how() -> None:
    made = window((2, ACQUIRED), (3, AVAILABLE), (4, ARCHIVED), (1, UNSEEN))
    made.move(0, 1, ACQUIRED, CHANGING | ACKNOWLEDGED)
    assert (made.open, made.done, made.held, made.unfinished) == (4, 4, 2, 6)
    assert made.done_or_about_to_be == 5


def test_locks_are_found_in_pieces() -> None:
    made = window((8, ACQUIRED))
    assert made.locked_by(7, 0, 100) == [(0, 8)]
    made.lock(2, 4, 9)
    assert made.locked_by(7, 10, 17) == [(0, 2), (4, 8)]
    assert made.locked_by(9, 10, 17) == [(2, 4)]
    assert made.locked_by(9, 12, 12) == [(2, 3)]
    assert made.locked_by(9, 15, 17) == []


@given(st.binary(max_size=60), st.integers(0, 60), st.integers(0, 60))
def test_runs_of_equal_cells(cells: bytes, begin: int, end: int) -> None:
    end = min(end, len(cells))
    begin = min(begin, end)
    runs = list(value_runs(cells, begin, end))
    assert b"".join(bytes([value]) * (b - a) for a, b, value in runs) == cells[begin:end]
    assert all(x[1] == y[0] and x[2] != y[2] for x, y in itertools.pairwise(runs))


@pytest.mark.parametrize("cell", ["states", "counts", "bounds", "locks", "numbers"])
def test_invariants_find_damage(cell: str) -> None:
    made = window((3, ACQUIRED), (3, AVAILABLE))
    getattr(made, cell)[0] = 0
    with pytest.raises(InvariantBroken):
        made.invariants()
