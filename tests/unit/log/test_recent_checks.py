"""What was found good a moment ago is not checked again, as long as the file holds it."""

from __future__ import annotations

import os
from typing import Any

import pytest

from penstock.base.errors import CorruptRecord
from penstock.log.limits import FRESH_S, RECENT_CHECKS_MAX, UNREAD_BYTES_MIN
from support.regions import Regions

LARGE = b"x" * UNREAD_BYTES_MIN


@pytest.fixture
def regions(monkeypatch: pytest.MonkeyPatch) -> Regions:
    return Regions(monkeypatch)


def grow_old(box: Any) -> None:
    box.clock.ms += round(FRESH_S * 1000) + 1


def fetch(box: Any, offset: int) -> tuple[bytes, int]:
    """What a reader gets from one batch at `offset`, and where it goes on."""
    piece = box.log.read(offset, 1, up_to_offset=box.log.log_end_offset)
    found = piece.to_send()
    return found.read(1 << 30) if hasattr(found, "send_to") else bytes(found), piece.end_offset


def checks(box: Any) -> Any:
    return box.log.segments.active.file.checks


def test_who_asks_second_has_it_sent_unread(box: Any, regions: Regions) -> None:
    for _ in range(3):
        box.append(LARGE)
    grow_old(box)
    first = [fetch(box, offset) for offset in range(3)]
    assert regions.made == 0
    for times in range(1, 4):
        assert [fetch(box, offset) for offset in range(3)] == first
        assert regions.made == 3 * times
    assert [end for _, end in first] == [1, 2, 3]


def test_it_is_checked_again_after_a_while(box: Any, regions: Regions) -> None:
    box.append(LARGE)
    grow_old(box)
    first = fetch(box, 0)
    grow_old(box)
    assert fetch(box, 0) == first
    assert regions.made == 0
    assert fetch(box, 0) == first
    assert regions.made == 1


def test_a_batch_that_is_cut_off_is_left_out_both_times(box: Any, regions: Regions) -> None:
    box.append(LARGE)
    box.append(LARGE)
    grow_old(box)
    pieces = [box.log.read(0, 3 * len(LARGE) // 2, up_to_offset=2) for _ in range(2)]
    data = bytes(pieces[0].to_send())
    assert len(data) < pieces[0].size
    assert pieces[1].to_send().read(1 << 30) == data
    assert regions.made == 1


def test_damage_is_never_taken_for_good(box: Any, regions: Regions) -> None:
    box.append(LARGE)
    grow_old(box)
    with open(box.log.segments.active.file.path, "r+b") as file:
        file.seek(1_000)
        file.write(b"damage")
    for _ in range(3):
        with pytest.raises(CorruptRecord):
            fetch(box, 0)
    assert regions.made == 0


def test_what_was_cut_off_and_written_anew_is_read_anew(box: Any, regions: Regions) -> None:
    box.append(b"front")
    box.append(LARGE)
    grow_old(box)
    old, _ = fetch(box, 1)
    box.log.truncate_to(1)
    box.append(LARGE[:-1] + b"y")
    grow_old(box)
    data, end = fetch(box, 1)
    assert (len(data), end, regions.made) == (len(old), 2, 0)
    assert data != old


def test_what_was_read_before_a_cut_says_nothing_after_it(
    box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread has read the old bytes, and gives them when the file holds others already."""
    box.append(b"front")
    box.append(LARGE)
    grow_old(box)
    slow = box.log.read(1, 1, up_to_offset=2)
    real = os.pread

    def cut_meanwhile(fd: int, size: int, position: int) -> bytes:
        data = real(fd, size, position)
        monkeypatch.undo()
        box.log.truncate_to(1)
        box.append(LARGE[:-1] + b"y")
        return data

    monkeypatch.setattr(os, "pread", cut_meanwhile)
    slow.read()
    assert len(checks(box)) == 0


def test_only_so_many_are_remembered(box: Any) -> None:
    box.append(LARGE)
    grow_old(box)
    file = box.log.segments.active.file
    found = checks(box)
    for position in range(2 * RECENT_CHECKS_MAX):
        found.put((file, position, UNREAD_BYTES_MIN), (1, 1), found.begin(file))
    assert len(found) == RECENT_CHECKS_MAX
    assert found.get((file, 0, UNREAD_BYTES_MIN)) is None
    assert found.get((file, 2 * RECENT_CHECKS_MAX - 1, UNREAD_BYTES_MIN)) == (1, 1)


def test_small_stretches_are_not_remembered(box: Any) -> None:
    box.append(LARGE[:-1_000])
    box.append(b"behind it")
    grow_old(box)
    fetch(box, 0)
    assert len(checks(box)) == 0
