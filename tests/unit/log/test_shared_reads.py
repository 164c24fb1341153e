"""What several readers ask for is read once, and is never other than what the file holds."""

from __future__ import annotations

import os
from typing import Any

import pytest

from penstock.log.limits import (
    SHARED_READ_BYTES_MAX,
    SHARED_READ_BYTES_MIN,
    SHARED_READS_AT_ONCE,
    SHARED_READS_MAX,
)

MUCH = 1 << 20
LARGE = b"x" * (SHARED_READ_BYTES_MIN + 1)


class Reads:
    """Counts the reads of files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        real = os.pread

        def counted(fd: int, size: int, position: int) -> bytes:
            self.sizes.append(size)
            return real(fd, size, position)

        monkeypatch.setattr(os, "pread", counted)

    def large(self) -> int:
        return sum(size >= SHARED_READ_BYTES_MIN for size in self.sizes)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


def fetch(box: Any, offset: int) -> tuple[bytes, int]:
    """What a reader gets from one batch at `offset`, and where it goes on."""
    piece = box.log.read(offset, 1, up_to_offset=box.log.log_end_offset)
    return bytes(piece.read()), piece.end_offset


def test_the_third_reader_finds_what_the_second_read(box: Any, reads: Reads) -> None:
    for _ in range(3):
        box.append(LARGE)
    first = [fetch(box, offset) for offset in range(3)]
    assert reads.large() == 3
    assert not box.log.segments.active.file.reads
    for _ in range(5):
        assert [fetch(box, offset) for offset in range(3)] == first
    assert reads.large() == 6
    assert [end for _, end in first] == [1, 2, 3]


def test_once_there_are_several_readers_the_first_reads_for_all(box: Any, reads: Reads) -> None:
    for _ in range(3):
        box.append(LARGE)
    fetch(box, 0), fetch(box, 0)
    assert reads.large() == 2
    for offset in (1, 2):
        assert fetch(box, offset) == fetch(box, offset)
    assert reads.large() == 4


def test_a_reader_whom_nobody_follows_any_more_keeps_nothing(box: Any) -> None:
    for _ in range(3 * SHARED_READS_AT_ONCE):
        box.append(LARGE)
    fetch(box, 0), fetch(box, 0)
    for offset in range(1, 3 * SHARED_READS_AT_ONCE):
        fetch(box, offset)
    assert len(box.log.segments.active.file.reads) == 1 + SHARED_READS_AT_ONCE


def test_what_was_cut_off_and_written_anew_is_read_anew(box: Any) -> None:
    box.append(b"front")
    box.append(LARGE)
    for _ in range(3):
        fetch(box, 1)
    box.log.truncate_to(1)
    box.append(bytes(reversed(LARGE[:-1] + b"y")))
    data, end = fetch(box, 1)
    assert (data[-2:-1], end) == (b"x", 2)
    assert b"y" in data


def test_what_was_read_before_a_cut_is_not_kept_after_it(
    box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread has read the old bytes, and gives them when the file holds others already."""
    box.append(b"front")
    box.append(LARGE)
    fetch(box, 1)
    slow = box.log.read(1, 1, up_to_offset=2)
    real = os.pread

    def cut_meanwhile(fd: int, size: int, position: int) -> bytes:
        data = real(fd, size, position)
        monkeypatch.undo()
        box.log.truncate_to(1)
        box.append(LARGE[:-1] + b"y")
        fetch(box, 1)  # whoever asks second has it kept
        return data

    monkeypatch.setattr(os, "pread", cut_meanwhile)
    old = bytes(slow.read())
    for _ in range(3):
        data, _ = fetch(box, 1)
        assert len(data) == len(old)
        assert data != old


def test_only_so_much_is_kept(box: Any) -> None:
    for offset in range(2 * SHARED_READS_MAX):
        box.append(LARGE)
        fetch(box, offset), fetch(box, offset)
    assert len(box.log.segments.active.file.reads) == SHARED_READS_MAX


@pytest.mark.parametrize("size", [SHARED_READ_BYTES_MIN // 2, SHARED_READ_BYTES_MAX + 1])
def test_small_and_very_large_stretches_are_not_kept(box: Any, size: int) -> None:
    box.append(b"z" * size)
    box.append(b"behind it")
    for _ in range(3):
        fetch(box, 0)
    assert len(box.log.segments.active.file.reads) == 0
