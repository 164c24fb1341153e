"""Which cells of a window stand for many records that are done.

A fold is a range of offsets in one cell. Offsets and cells are counted from the same offset on, so
an offset and the *place* of its cell differ by what is hidden in the folds before it. Places do not
change when the window is cut; a position is a place less that of the window's start.

Invariant: folds ascend, do not overlap, lie behind the start, and hide at least one offset each.
Both ways cost a search among the folds. A window without any has none of this.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from penstock.base.errors import invariant


class Folds:
    __slots__ = ("_base", "_begins", "_first", "_hidden", "_places")

    def __init__(self, start: int) -> None:
        self._first = start
        """The place of the window's start."""
        self._base = 0
        """What is hidden before the start."""
        self._begins: list[int] = []
        """The first offset of each fold."""
        self._places: list[int] = []
        self._hidden: list[int] = []
        """What is hidden up to the end of each fold."""

    def __len__(self) -> int:
        return len(self._begins)

    @property
    def hidden(self) -> int:
        """By how many the offsets of the window are more than its cells."""
        return self._hidden[-1] - self._base if self._hidden else 0

    def add(self, first_offset: int, last_offset: int) -> None:
        """Behind all others; it hides all its offsets but one."""
        before = self._hidden[-1] if self._hidden else self._base
        self._begins.append(first_offset)
        self._places.append(first_offset - before)
        self._hidden.append(before + last_offset - first_offset)

    def offset(self, position: int) -> int:
        """The first offset of a cell."""
        place = self._first + position
        folds = bisect_left(self._places, place)
        return place + (self._hidden[folds - 1] if folds else self._base)

    def position(self, offset: int) -> int:
        """The cell that an offset is in."""
        fold = bisect_right(self._begins, offset) - 1
        place = offset - (self._hidden[fold] if fold >= 0 else self._base)
        if fold >= 0:
            # An offset within the fold is less than where its cell ends.
            place = max(place, self._places[fold])
        return place - self._first

    def cut(self, start: int) -> None:
        """The window begins at a later offset, which may be within a fold."""
        passed = bisect_left(self._begins, start)
        if passed:
            hidden = self._hidden[passed - 1]
            before = self._hidden[passed - 2] if passed > 1 else self._base
            last = self._begins[passed - 1] + hidden - before
            if start < last:
                passed -= 1
                self._base = hidden - (last - start)
                self._begins[passed] = start
                self._places[passed] = start - self._base
            else:
                self._base = hidden
            del self._begins[:passed], self._places[:passed], self._hidden[:passed]
        self._first = start - self._base

    def invariants(self, positions: int) -> None:
        """`positions`: how many cells the window has."""
        begins, hidden, before = self._begins, self._hidden, self._base
        for fold, begin in enumerate(begins):
            invariant(self._places[fold] == begin - before, "a fold is in the wrong place")
            invariant(hidden[fold] > before, "a fold hides nothing")
            position = self._places[fold] - self._first
            invariant(0 <= position < positions, "a fold lies outside of the window")
            before = hidden[fold]
        invariant(self._places == sorted(set(self._places)), "folds do not ascend")
