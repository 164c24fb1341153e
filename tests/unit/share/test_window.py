"""The memory of a share-partition: moves, batches, runs, and what is cut from its beginning."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import InvariantBroken
from penstock.share import reviving
from penstock.share.reviving import ascending, done_in
from penstock.share.window import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    CHANGING,
    DEAD,
    MOVES,
    TAKEN,
    TERMINAL,
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


def test_what_is_done_stays_done_unless_it_is_revived() -> None:
    from_done = {move for move in MOVES if move[0] in (ACKNOWLEDGED, ARCHIVED)}
    revived = CHANGING | AVAILABLE
    assert from_done == {(ACKNOWLEDGED, revived), (ARCHIVED, revived)}


def test_nobody_acquires_a_dead_letter() -> None:
    assert {old for old, new in MOVES if new == ACQUIRED} & DEAD == set()
    assert {new for old, new in MOVES if old in DEAD} == {ARCHIVING, TAKEN, ARCHIVED}


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


def folded(*parts: tuple[int, int], start: int = 10) -> Window:
    """So many offsets in that state; those that are done as folds if there are enough."""
    made = Window(start)
    for offsets, state in parts:
        if state in TERMINAL:
            made.append_done(offsets, state, 1)
        else:
            made.append(offsets, state, 1)
    made.invariants()
    return made


PARTS = st.lists(
    st.tuples(st.integers(1, 80), st.sampled_from([AVAILABLE, ACKNOWLEDGED, ARCHIVED])),
    min_size=1,
    max_size=6,
)


@given(PARTS, st.integers(0, 300))
def test_a_folded_window_knows_every_record(parts: list[tuple[int, int]], cut: int) -> None:
    """Against a plain list of states by offset."""
    made = folded(*parts)
    states = {10 + o: s for o, s in enumerate(s for n, s in parts for _ in range(n))}
    made.cut_to(10 + cut)
    made.invariants()
    states = {o: s for o, s in states.items() if o >= 10 + cut}
    assert made.end == max(states, default=made.start - 1)
    assert made.span == len(states)
    assert made.done == sum(s in TERMINAL for s in states.values())
    for offset, state in states.items():
        begin, end = made.clip(offset, offset)
        assert (end - begin, made.states[begin]) == (1, state)
        assert made.offset(begin) <= offset < made.offset(end)
    runs = [
        (o, state)
        for begin, end, state in made.state_runs(0, len(made))
        for o in range(made.offset(begin), made.offset(end))
    ]
    assert runs == list(states.items())


@given(PARTS, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 5)), max_size=4))
def test_folding_changes_no_record(
    parts: list[tuple[int, int]], apart: list[tuple[int, int]]
) -> None:
    made = folded(*parts, start=100)
    ranges = ascending((first, first + more) for first, more in apart)
    ranges = ascending(done_in(made, ranges))
    again = reviving.folded(made, ranges)
    again.invariants()
    assert again.start == min([made.start, *(first for first, _ in ranges)])
    for offset in range(again.start, made.end + 1):
        begin, _ = again.clip(offset, offset)
        if offset < made.start:
            assert (again.states[begin], again.counts[begin]) == (ACKNOWLEDGED, 0)
        else:
            old, _ = made.clip(offset, offset)
            assert again.states[begin] == made.states[old]
            assert again.counts[begin] == made.counts[old]
        if any(first <= offset <= last for first, last in ranges):
            assert again.offset(begin + 1) - again.offset(begin) == 1, "it has no cell of its own"


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
