"""What was written last stays in memory for readers at the tail, and is what the file holds."""

from __future__ import annotations

import os
from typing import Any

import pytest

from penstock.log.limits import TAIL_BYTES_MAX
from penstock.log.log import Batch
from penstock.wire.records import Record, build_batch, parse_header

MUCH = 1 << 20


def batch_of(*values: bytes) -> Batch:
    data = build_batch([Record(0, 1, None, value) for value in values])
    return Batch(parse_header(data), memoryview(data))


def tail_of(box: Any) -> bytes | None:
    tail: bytes | None = box.log.segments.active.file.tail
    return tail


def in_file(box: Any) -> bytes:
    with open(box.log.segments.active.file.path, "rb") as file:
        return file.read()


def damage(box: Any, position: int) -> None:
    with open(box.log.segments.active.file.path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ 0xFF]))


def test_the_last_write_is_read_without_the_file(box: Any) -> None:
    box.append(b"one")
    before = len(in_file(box))
    box.append(b"two", b"three")
    piece = box.log.read(1, MUCH, up_to_offset=3)
    data = bytes(piece.read(nowait=True))
    assert data == in_file(box)[before:]
    assert (piece.base_offset, piece.end_offset, piece.position) == (1, 3, before)
    damage(box, before + 70)
    assert bytes(box.log.read(1, MUCH, up_to_offset=3).read()) == data


@pytest.mark.parametrize(
    ("offset", "most", "up_to"),
    [(0, MUCH, 4), (2, MUCH, 4), (1, 80, 4), (1, MUCH, 2)],
    ids=["before it", "within it", "less room", "not all committed"],
)
def test_other_reads_take_the_file(box: Any, offset: int, most: int, up_to: int) -> None:
    box.append(b"one")
    box.log.stage([batch_of(b"two")], 0, 1)
    box.log.stage([batch_of(b"three", b"four")], 0, 1)
    box.log.write_staged()
    tail = tail_of(box)
    assert tail is not None
    piece = box.log.read(offset, most, up_to_offset=up_to)
    held = bytes(piece.read())
    assert held
    assert held != tail
    assert held == in_file(box)[piece.position : piece.position + len(held)]


def test_what_is_cut_off_is_not_read(box: Any) -> None:
    box.append(b"one")
    box.append(b"two")
    box.log.truncate_to(1)
    assert tail_of(box) is None
    box.append(b"other")
    assert box.values() == {0: b"one", 1: b"other"}


def test_a_write_that_failed_leaves_no_tail(box: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    box.append(b"one")

    def refuse(*_: Any) -> int:
        raise OSError("no space")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", refuse)
        with pytest.raises(Exception, match="no space"):
            box.append(b"two")
    assert tail_of(box) is None
    assert box.values() == {0: b"one"}


def test_large_writes_and_closed_files_leave_nothing_in_memory(box: Any) -> None:
    box.append(b"x" * TAIL_BYTES_MAX)
    assert tail_of(box) is None
    box.append(b"small")
    assert tail_of(box) is not None
    box.log.segments.active.file.close()
    assert tail_of(box) is None
    assert box.values(1) == {1: b"small"}
