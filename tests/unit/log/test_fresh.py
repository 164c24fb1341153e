"""What was written a moment ago can be sent unread: whole batches, and nothing that is older."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log.closing import close_logs
from penstock.log.limits import FRESH_S, REGIONS_MAX, UNREAD_BYTES_MIN
from support.regions import Regions
from unit.log.conftest import LogBox

LARGE = b"x" * UNREAD_BYTES_MIN


@pytest.fixture
def regions(monkeypatch: pytest.MonkeyPatch) -> Regions:
    return Regions(monkeypatch)


def read(box: Any, offset: int, max_bytes: int = 1 << 20) -> Any:
    return box.log.read(offset, max_bytes, up_to_offset=box.log.log_end_offset)


def sent(piece: Any) -> bytes:
    """What arrives at the other end of a socket."""
    region, arrived = piece.to_send(), b""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        while region.size:
            took = region.send_to(ours.fileno(), 1 << 30)
            while took:
                data = theirs.recv(took)
                arrived, took = arrived + data, took - len(data)
        return arrived


def test_what_was_just_written_goes_out_as_it_would_be_read(box: Any) -> None:
    for _ in range(3):
        box.append(LARGE)
    piece = read(box, 1)
    assert piece.fresh
    assert sent(piece) == bytes(piece.read())
    assert piece.end_offset == 3


def test_the_age_of_what_is_sent_unread_has_a_limit(box: Any) -> None:
    for _ in range(4):
        box.append(LARGE)
        box.clock.ms += round(FRESH_S * 500) + 100
    # The last was written so long ago; the one before it twice that, and so on.
    assert [read(box, offset, 1).fresh for offset in range(4)] == [False, False, False, True]
    box.clock.ms += round(FRESH_S * 500)
    assert not read(box, 3, 1).fresh


def test_what_is_written_all_the_time_is_always_sent_unread(box: Any) -> None:
    for offset in range(100):
        box.append(LARGE)
        assert read(box, offset).fresh
        box.clock.ms += round(FRESH_S * 1000 / 7)


def test_after_a_restart_everything_is_read(box: Any) -> None:
    box.append(LARGE)
    box.log = box.reopen_clean()
    assert not read(box, 0).fresh


def test_small_pieces_are_read(box: Any) -> None:
    for _ in range(3):
        box.append(b"small")
    assert not read(box, 0).fresh


def test_a_batch_that_has_no_room_uses_it_up(box: Any) -> None:
    for _ in range(3):
        box.append(LARGE * 2)
    size = read(box, 0, 1).size
    piece = read(box, 0, 2 * size + 100)
    assert piece.fresh
    assert (piece.size, piece.room) == (2 * size, 2 * size + 100)


def test_a_file_that_was_cut_off_meanwhile_is_no_endless_wait(box: Any) -> None:
    box.append(LARGE)
    piece = read(box, 0)
    region = piece.to_send()
    os.truncate(piece.file.path, 1_000)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert region.send_to(ours.fileno(), 1 << 30) == 1_000
        with pytest.raises(OSError, match="were cut off"):
            region.send_to(ours.fileno(), 1 << 30)


def test_only_so_much_is_on_its_way_unread(box: Any, regions: Regions) -> None:
    """Each stretch keeps its file open for as long as somebody has it."""
    for _ in range(3):
        box.append(LARGE)
    file = box.log.segments.active.file
    cache = file._cache
    on_their_way = [read(box, offset, 1).to_send() for offset in range(2)]
    assert (cache.regions, file.pins, regions.made) == (2, 2, 2)
    cache.regions += REGIONS_MAX - 2
    third = read(box, 2, 1)
    assert third.fresh
    assert bytes(third.to_send()) == bytes(third.read())
    assert regions.made == 2
    on_their_way.clear()
    assert (cache.regions, file.pins) == (REGIONS_MAX - 2, 0)
    cache.regions = 0


def test_a_segment_that_is_deleted_is_sent_to_its_end(box: Any) -> None:
    box.append(LARGE)
    piece = read(box, 0)
    data, region = bytes(piece.read()), piece.to_send()
    box.log.segments.active.delete()
    assert region.read(1 << 30) == data
    assert piece.file.fd >= 0
    del region
    assert piece.file.fd == -1


def test_what_the_page_cache_lacks_is_not_waited_for(
    box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks(*args: Any) -> int:
        raise BlockingIOError

    box.append(LARGE)
    piece = read(box, 0)
    monkeypatch.setattr(os, "preadv", lacks)
    with pytest.raises(BlockingIOError):
        piece.to_send(nowait=True)


def test_what_was_cut_off_and_written_anew_is_sent_anew(box: Any) -> None:
    box.append(LARGE)
    box.append(LARGE)
    box.log.truncate_to(1)
    box.append(LARGE[:-1] + b"y")
    piece = read(box, 1)
    assert piece.fresh
    assert sent(piece) == bytes(piece.read())


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([10, 1_000, 5_000, 30_000, 100_000, 300_000]), min_size=1),
    offset=st.integers(0, 30),
    max_bytes=st.integers(1, 700_000),
    behind=st.integers(0, 3),
)
def test_a_fresh_piece_is_whole_batches(
    sizes: list[int], offset: int, max_bytes: int, behind: int
) -> None:
    with LogBox.home() as home:
        box = LogBox(Path(home))
        for size in sizes:
            box.append(b"x" * size)
        end = max(1, len(sizes) - behind)
        piece = box.log.read(min(offset, end - 1), max_bytes, up_to_offset=end)
        assert piece is not None
        data = bytes(piece.read())
        assert piece.size <= piece.room
        assert len(data) <= piece.size
        if piece.fresh:
            assert len(data) == piece.size
            assert sent(piece) == data
        assert close_logs([box.log])
