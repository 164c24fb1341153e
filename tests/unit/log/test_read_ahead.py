"""Who reads what the page cache lacks finds there what comes next."""

from __future__ import annotations

import os
from typing import Any

import pytest

from penstock.log.limits import READ_AHEAD_BYTES

PIECE = b"x" * (READ_AHEAD_BYTES // 4)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Where the page cache was asked to read ahead: from and to."""
    asked: list[tuple[int, int]] = []

    def advise(fd: int, start: int, size: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_WILLNEED
        asked.append((start, start + size))

    monkeypatch.setattr(os, "posix_fadvise", advise)
    return asked


def pieces(box: Any, count: int) -> list[Any]:
    for _ in range(count):
        box.append(PIECE)
    end = box.log.log_end_offset
    return [box.log.read(offset, 1, up_to_offset=end) for offset in range(count)]


def end_of(piece: Any) -> int:
    return int(piece.position + piece.size)


def test_nothing_is_read_ahead_before_something_was_missing(box: Any) -> None:
    assert not any(piece.nears_the_unread() for piece in pieces(box, 3))


def test_read_ahead_goes_on_while_half_of_it_is_left(
    box: Any, asked: list[tuple[int, int]]
) -> None:
    first, second, third, fourth = pieces(box, 4)
    first.read_ahead()
    assert asked == [(end_of(first), end_of(first) + READ_AHEAD_BYTES)]
    assert not second.nears_the_unread()
    assert third.nears_the_unread()
    third.read_ahead()
    assert asked[1:] == [(end_of(first) + READ_AHEAD_BYTES, end_of(third) + READ_AHEAD_BYTES)]
    assert not fourth.nears_the_unread()


def test_another_reader_elsewhere_begins_anew(box: Any, asked: list[tuple[int, int]]) -> None:
    *_, late = pieces(box, 12)
    early = box.log.read(0, 1, up_to_offset=12)
    early.read_ahead()
    late.read_ahead()
    assert asked[1] == (end_of(late), end_of(late) + READ_AHEAD_BYTES)


def test_a_file_that_is_gone_is_no_matter(box: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("no such file")

    [piece] = pieces(box, 1)
    monkeypatch.setattr(os, "posix_fadvise", refuse)
    piece.read_ahead()
    assert piece.read()
