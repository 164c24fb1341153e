"""A disk that refuses: writes fail and leave nothing behind, reads go on, and the log heals."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.base.errors import StorageError
from penstock.log.flush import flush
from penstock.log.limits import WRITE_RETRY_PAUSE_MS
from penstock.log.log import Batch
from penstock.wire.records import Record, build_batch, parse_header


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """No file of this process grows beyond `size`: a write across it is short, the next fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_cut_short_is_taken_back_and_the_log_heals(box: Any, caplog: Any) -> None:
    box.append(b"first" * 10)
    size = box.log.size_bytes
    with files_end_at(size + 20):
        with pytest.raises(StorageError, match="topic-0 cannot be written"):
            box.append(b"second" * 10)
        assert os.path.getsize(box.path(0, ".log")) == size
        assert box.log.failure is not None
        assert box.values() == {0: b"first" * 10}
        # Within the pause the disk is not asked again.
        with pytest.raises(StorageError, match="refuses writes"):
            box.append()
        box.clock.ms += WRITE_RETRY_PAUSE_MS
        with pytest.raises(StorageError, match="cannot be written"):
            box.append(b"second" * 10)
    box.clock.ms += WRITE_RETRY_PAUSE_MS
    assert box.append(b"third").first_offset == 1
    assert box.log.failure is None
    assert box.values() == {0: b"first" * 10, 1: b"third"}
    assert [r.levelname for r in caplog.records] == ["ERROR", "WARNING"]
    box.crash()
    assert box.values() == {0: b"first" * 10, 1: b"third"}


def test_large_writes_are_taken_back_too(box: Any) -> None:
    box.append(b"first")
    size = box.log.size_bytes
    with files_end_at(size + 100_000), pytest.raises(StorageError):
        box.append(*[b"x" * 50_000] * 4)
    assert os.path.getsize(box.path(0, ".log")) == size
    box.clock.ms += WRITE_RETRY_PAUSE_MS
    assert box.append(b"y" * 300_000).first_offset == 1


def test_a_group_that_rolled_is_taken_back_as_a_whole(new_box: Any) -> None:
    box = new_box(segment_bytes=1_000)
    box.send(7, 0)
    before = box.values()
    with files_end_at(500):
        with pytest.raises(StorageError):
            box.send(7, 1, 100)
        assert box.log.log_end_offset == 1
    box.clock.ms += WRITE_RETRY_PAUSE_MS
    assert box.values() == before
    stage(box, 1, 300)
    stage(box, 2, 300)
    stage(box, 3, 600)
    stage(box, 4, 890)
    with files_end_at(900), pytest.raises(StorageError):
        box.log.write_staged()
    assert box.log.log_end_offset == 1
    assert [s.base_offset for s in box.log.segments] == [0]
    assert box.values() == before
    box.clock.ms += WRITE_RETRY_PAUSE_MS
    again = box.send(7, 1)
    assert (again.duplicate, again.first_offset) == (False, 1)
    box.crash()
    assert sorted(box.values()) == [0, 1]


def stage(box: Any, sequence: int, size: int) -> None:
    data = build_batch(
        [Record(0, 1, None, b"x" * size)], producer_id=7, producer_epoch=0, base_sequence=sequence
    )
    box.log.stage([Batch(parse_header(data), data)], 0, box.clock.ms)


def test_a_start_on_a_full_disk_serves_reads(new_box: Any) -> None:
    box = new_box(segment_bytes=400, index_interval_bytes=50)
    for i in range(10):
        box.send(7, i, leader_epoch=i // 5)
    before = box.values()
    box.log.release()
    for path in (*box.dir.glob("*index"), *box.dir.glob("*.snapshot")):
        path.unlink()
    with files_end_at(5):
        box.crash(recovery_point=0)
        assert box.values() == before
        with pytest.raises(StorageError):
            box.append()
    box.clock.ms += WRITE_RETRY_PAUSE_MS
    assert box.send(7, 9).duplicate
    assert box.send(7, 10).first_offset == 10
    box.reopen_clean()
    assert len(box.values()) == 11


def test_producers_may_repeat_what_was_not_written(box: Any) -> None:
    box.send(7, 0)
    with files_end_at(box.log.size_bytes + 1), pytest.raises(StorageError):
        box.send(7, 1)
    box.clock.ms += WRITE_RETRY_PAUSE_MS
    info = box.send(7, 1)
    assert (info.duplicate, info.first_offset) == (False, 1)


def test_a_transaction_stays_open_when_its_marker_was_not_written(box: Any) -> None:
    box.send(7, 0, transactional=True)
    with files_end_at(box.log.size_bytes + 1), pytest.raises(StorageError):
        box.end_txn(7, commit=False)
    assert box.log.producers.ongoing == {0: 7}
    box.clock.ms += WRITE_RETRY_PAUSE_MS
    box.end_txn(7, commit=False)
    assert box.log.producers.ongoing == {}
    assert len(box.log.aborted_transactions(0, 10)) == 1


def test_a_marker_whose_index_entry_fails_is_taken_back(box: Any) -> None:
    box.send(7, 0, transactional=True)
    # The transaction index cannot be opened for writing: its name is taken by a directory.
    obstacle = box.path(0, ".txnindex")
    box.log.segments.active.txn_index.all()
    obstacle.mkdir()
    with pytest.raises(StorageError):
        box.end_txn(7, commit=False)
    assert box.log.log_end_offset == 1
    assert box.log.producers.ongoing == {0: 7}
    obstacle.rmdir()
    box.clock.ms += WRITE_RETRY_PAUSE_MS
    box.end_txn(7, commit=False)
    (txn,) = box.log.aborted_transactions(0, 10)
    assert txn.last_offset == 1


def test_a_marker_that_is_taken_back_makes_nothing_committed_unstable(box: Any) -> None:
    box.send(7, 0, transactional=True)
    box.end_txn(7, commit=True)
    box.log.update_high_watermark(2)
    first = box.send(8, 0, transactional=True).first_offset
    box.log.update_high_watermark(first + 1)
    box.log.segments.active.txn_index.all()
    box.path(0, ".txnindex").mkdir()
    with pytest.raises(StorageError):
        box.end_txn(8, commit=False)
    assert box.log.last_stable_offset == first


def test_epochs_that_cannot_be_written_are_tried_again(box: Any) -> None:
    """The recovery point does not pass what is not on disk, and writes go on after the pause."""
    box.append(epoch=0)
    box.append(epoch=1)
    obstacle = box.dir / "leader-epoch-checkpoint.flushed.tmp.tmp"
    obstacle.mkdir()
    with pytest.raises(StorageError):
        flush(box.log)
    assert box.log.recovery_point == 0
    obstacle.rmdir()
    box.clock.ms += WRITE_RETRY_PAUSE_MS
    box.append(epoch=1)
    flush(box.log)
    assert (box.log.recovery_point, box.log.failure) == (3, None)
    assert (box.dir / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n1 1\n"


def test_a_roll_that_fails_keeps_the_segment(box: Any) -> None:
    box.append(b"a")
    obstacle = box.path(1, ".log")
    obstacle.mkdir()
    with pytest.raises(StorageError):
        box.log.roll()
    assert len(box.log.segments) == 1
    obstacle.rmdir()
    box.clock.ms += WRITE_RETRY_PAUSE_MS
    box.append(b"b")
    box.log.roll()
    assert box.values() == {0: b"a", 1: b"b"}
    assert len(box.log.segments) == 2
