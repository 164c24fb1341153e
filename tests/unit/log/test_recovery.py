"""What a start finds after a crash, and after damage to the files."""

from __future__ import annotations

import errno
import os
import shutil
from typing import Any

import pytest

from penstock.base.errors import CorruptRecord, StorageError
from penstock.log import index
from penstock.log.closing import close_logs
from penstock.log.files import TMP_SUFFIX
from penstock.log.flush import flush, flush_is_due
from penstock.log.limits import INDEX_FLUSH_BATCHES, UNFLUSHED_BATCHES_MAX
from penstock.log.retention import delete_old_segments
from penstock.log.time_lookup import MAX_TIMESTAMP
from support.lookups import looked_up


def filled(new_box: Any, count: int = 6, **config: Any) -> Any:
    box = new_box(**config)
    for i in range(count):
        box.append(b"value-%d" % i, b"second")
    return box


def test_a_tail_cut_at_any_byte_leaves_the_batches_before_it(new_box: Any) -> None:
    box = filled(new_box)
    path = box.path(0, ".log")
    whole, before = path.read_bytes(), box.values()
    size = len(whole) // 6
    for end in range(3 * size, len(whole)):
        box.log.release()
        path.write_bytes(whole[:end])
        log = box.crash(recovery_point=0)
        batches = end // size
        assert log.log_end_offset == 2 * batches
        assert box.values() == {o: v for o, v in before.items() if o < 2 * batches}
        assert path.stat().st_size == batches * size
    assert box.append(b"next").first_offset == box.log.log_end_offset - 1


def test_any_flipped_byte_above_the_recovery_point_is_found(new_box: Any) -> None:
    box = filled(new_box, 4)
    path = box.path(0, ".log")
    whole, before = path.read_bytes(), box.values()
    size = len(whole) // 4
    for at in range(size, 3 * size):
        if at % size in (12, 13, 14, 15):
            continue  # the leader epoch is not under the CRC: it is the broker's to write
        box.log.release()
        damaged = bytearray(whole)
        damaged[at] ^= 0x40
        path.write_bytes(damaged)
        log = box.crash(recovery_point=0)
        good = at // size
        if at % size < 8 and log.log_end_offset > 2 * good:
            # A larger base offset is a gap, which compaction may leave; what it holds is intact.
            assert {o: v for o, v in box.values().items() if o < 2 * good} == {
                o: v for o, v in before.items() if o < 2 * good
            }
            continue
        assert log.log_end_offset == 2 * good
        assert box.values() == {o: v for o, v in before.items() if o < 2 * good}


def test_zeros_behind_the_data_are_cut(new_box: Any) -> None:
    box = filled(new_box, 2)
    with open(box.path(0, ".log"), "ab") as f:
        f.write(bytes(10_000))
    before = box.values()
    box.crash()
    assert box.values() == before
    assert box.append().first_offset == 4


def test_segments_behind_a_torn_one_go(new_box: Any) -> None:
    box = filled(new_box, 9, segment_bytes=350)
    assert len(box.log.segments) == 3
    middle = box.log.segments[1].base_offset
    box.log.release()
    os.truncate(box.path(middle, ".log"), 250)
    box.crash(recovery_point=0)
    assert box.log.log_end_offset == middle + 4
    assert len(box.log.segments) == 2
    assert sorted(box.values()) == list(range(middle + 4))
    assert box.append().first_offset == middle + 4


def test_segments_behind_one_that_lost_its_end_go(new_box: Any) -> None:
    """A loss of power may take the end of one segment and leave the next one whole."""
    box = filled(new_box, 9, segment_bytes=350)
    middle = box.log.segments[1].base_offset
    size = box.path(0, ".log").stat().st_size
    box.log.release()
    os.truncate(box.path(0, ".log"), size * 2 // 3)
    log = box.crash(recovery_point=0)
    assert 0 < log.log_end_offset < middle
    assert sorted(box.values()) == list(range(log.log_end_offset))
    assert len(log.segments) == 1


def test_an_empty_segment_that_a_failed_roll_left_hides_nothing(new_box: Any) -> None:
    box = filled(new_box, 9, segment_bytes=350)
    before, middle = box.values(), box.log.segments[1].base_offset
    box.log.release()
    box.path(middle + 2, ".log").write_bytes(b"")
    box.crash(recovery_point=0)
    assert box.values() == before


def test_what_a_lost_truncation_had_cut_off_is_known_by_its_epoch(new_box: Any) -> None:
    """The log was cut and written anew in another epoch; the disk kept some of the old data."""
    box = new_box()
    for value in (b"shared", b"old", b"older"):
        box.append(value, epoch=0)
    old = box.path(0, ".log").read_bytes()
    last = len(old) - box.log.read(2, 1 << 20, up_to_offset=3).size
    box.log.truncate_to(1)
    box.append(b"new", epoch=1)
    new = box.path(0, ".log").read_bytes()
    box.log.release()
    box.path(0, ".log").write_bytes(old)
    assert box.crash(recovery_point=0).epochs.latest_epoch == 0
    box.log.release()
    box.path(0, ".log").write_bytes(new + old[last:])
    log = box.crash(recovery_point=0)
    assert (log.log_end_offset, log.epochs.latest_epoch) == (2, 1)
    assert box.values() == {0: b"shared", 1: b"new"}


def test_what_a_lost_truncation_had_cut_off_before_a_roll_goes(new_box: Any) -> None:
    box = new_box()
    for value in (b"shared", b"old", b"older"):
        box.append(value, epoch=0)
    old = box.path(0, ".log").read_bytes()
    box.log.truncate_to(1)
    box.log.roll()
    box.append(b"new", epoch=1)
    box.log.release()
    box.path(0, ".log").write_bytes(old)
    log = box.crash(recovery_point=0)
    assert (log.log_end_offset, log.epochs.latest_epoch) == (2, 1)
    assert box.values() == {0: b"shared", 1: b"new"}


def test_epochs_that_no_flush_has_written_are_found_again(new_box: Any) -> None:
    box = new_box()
    box.append(b"a", epoch=0)
    box.append(b"b", epoch=2)
    flush(box.log)
    box.append(b"c", epoch=3)
    box.append(b"d", epoch=5)
    before = box.log.epochs.entries
    assert (box.dir / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n2 1\n"
    log = box.crash(recovery_point=2)
    assert log.epochs.entries == before
    assert [tuple(entry) for entry in before] == [(0, 0), (2, 1), (3, 2), (5, 3)]


def test_only_what_lies_above_the_recovery_point_is_scanned(new_box: Any, caplog: Any) -> None:
    box = filled(new_box, 9, segment_bytes=350)
    point = box.log.segments[1].base_offset
    damaged = box.path(0, ".log")
    data = bytearray(damaged.read_bytes())
    data[80] ^= 1
    box.log.release()
    damaged.write_bytes(data)
    box.crash(recovery_point=point)
    assert box.log.log_end_offset == 18
    # The damage lies below the recovery point: it is kept, and refused when it is read.
    with pytest.raises(CorruptRecord, match=r"00000000000000000000.log at position 0"):
        box.values(0)
    with pytest.raises(CorruptRecord):
        box.values(0)
    assert caplog.text.count("holds damaged data, which is not served") == 1
    assert sorted(box.values(point)) == list(range(point, 18))
    assert box.append().first_offset == 18


def test_flushed_data_is_never_cut(new_box: Any) -> None:
    box = filled(new_box, 5)
    flush(box.log)
    path = box.path(0, ".log")
    data = bytearray(path.read_bytes())
    size = len(data) // 5
    data[2 * size + 70] ^= 1
    box.log.release()
    path.write_bytes(data)
    box.crash()
    assert path.stat().st_size == 5 * size
    assert box.log.log_end_offset == 10
    assert len(box.log.read(0, 2 * size, up_to_offset=10).read()) == 2 * size
    with pytest.raises(CorruptRecord, match=f"at position {2 * size}"):
        box.values(4)
    assert sorted(box.values(6)) == [6, 7, 8, 9]
    assert box.append().first_offset == 10


def test_flushed_data_that_cannot_be_found_stops_writes_but_not_reads(new_box: Any) -> None:
    box = filled(new_box, 5)
    flush(box.log)
    path = box.path(0, ".log")
    data = bytearray(path.read_bytes())
    size = len(data) // 5
    data[3 * size + 16] = 9  # the magic
    box.log.release()
    path.write_bytes(data)
    log = box.crash()
    assert log.failure is not None
    assert f"at position {3 * size}" in log.failure
    assert path.stat().st_size == 5 * size
    box.clock.ms += 1_000_000
    with pytest.raises(StorageError):
        box.append()
    assert len(log.read(0, 1 << 20, up_to_offset=6).read()) == 3 * size


def test_damage_after_a_clean_stop_is_noticed_at_the_end_of_the_log(new_box: Any) -> None:
    box = filled(new_box, 5)
    assert close_logs([box.log])
    path = box.path(0, ".log")
    left = path.stat().st_size - 5
    os.truncate(path, left)
    box.log = box.load(clean=True, recovery_point=10)
    assert box.log.failure is not None
    assert path.stat().st_size == left
    assert sorted(o for o in range(8) if box.values(o)) == list(range(8))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "empty", "odd", "garbage", "zeros"])
@pytest.mark.parametrize("start", ["clean", "unclean"])
def test_indexes_are_made_anew(new_box: Any, suffix: str, damage: str, start: str) -> None:
    box = new_box(segment_bytes=2_000, index_interval_bytes=100)
    for i in range(60):
        box.append(b"%d" % i, timestamp=i)
    before = box.values()
    assert close_logs([box.log])
    for path in box.dir.glob(f"*{suffix}"):
        size = path.stat().st_size
        if damage == "missing":
            path.unlink()
        else:
            content = {"empty": 0, "odd": 13, "garbage": size, "zeros": size}[damage]
            path.write_bytes(bytes(content) if damage == "zeros" else os.urandom(content))
    box.log = box.load(clean=start == "clean", recovery_point=60)
    assert box.log.log_end_offset == 60
    for offset in range(60):
        assert next(iter(box.values(offset).items())) == (offset, before[offset])
        assert looked_up(box.log, offset)[:2] == (offset, offset)
    assert looked_up(box.log, MAX_TIMESTAMP)[:2] == (59, 59)
    box.append(b"more", timestamp=60)
    assert box.values(60) == {60: b"more"}


def test_damaged_time_indexes_do_not_delete_data(new_box: Any) -> None:
    box = new_box(segment_bytes=400, retention_ms=1_000)
    for _ in range(10):
        box.append(timestamp=100_000)
    assert close_logs([box.log])
    for path in box.dir.glob("*.timeindex"):
        path.write_bytes((5).to_bytes(8, "big") + bytes(4))
    box.log = box.load(clean=True, recovery_point=10)
    assert delete_old_segments(box.log, 100_500) == 0
    assert len(box.values()) == 10


def test_orphans_and_leftovers_are_removed(new_box: Any) -> None:
    box = filled(new_box, 3)
    before = box.values()
    assert close_logs([box.log])
    for name in (
        "00000000000000000077.index",
        "00000000000000000077.timeindex",
        "00000000000000000002.log.deleted",
        "00000000000000000002.index.deleted",
        "00000000000000000000.log.cleaned",
        "00000000000000000006.snapshot.tmp",
    ):
        (box.dir / name).write_bytes(b"leftover")
    box.log = box.load(clean=True)
    assert box.values() == before
    assert not [n for n in os.listdir(box.dir) if n.startswith("00000000000000000077")]
    assert not box.names(".deleted") + box.names(".cleaned") + box.names(".tmp")


def test_an_empty_directory_begins_at_the_log_start(new_box: Any) -> None:
    box = new_box()
    box.log.release()
    shutil.rmtree(box.dir)
    box.dir.mkdir()
    log = box.load(clean=False, log_start_offset=7)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)


def test_a_log_that_ends_below_its_start_begins_there(new_box: Any) -> None:
    box = filled(new_box, 2)
    log = box.crash(log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert box.append().first_offset == 100


def test_the_check_begins_in_the_middle_of_a_segment(new_box: Any, caplog: Any) -> None:
    box = new_box(index_interval_bytes=100)
    for i in range(50):
        box.send(7, i)
    flushed = box.log.size_bytes
    box.log.batches_unindexed = INDEX_FLUSH_BATCHES
    flush(box.log)
    assert box.path(0, ".index").stat().st_size > 0
    assert box.names(".snapshot") == [f"{50:020d}.snapshot"]
    for i in range(50, 60):
        box.send(7, i)
    tail, before = box.log.size_bytes - flushed, box.values()
    with caplog.at_level("INFO", "penstock.log"):
        box.crash()
    assert f"recovered topic-0: {tail} bytes checked, 0 cut" in caplog.text
    assert box.values() == before
    assert [box.values(o)[o] for o in range(60)] == [b"v"] * 60
    assert box.send(7, 57).duplicate
    assert box.send(7, 60).first_offset == 60
    # A later one replaces it: only the newest snapshot inside a segment is of use.
    box.log.batches_unindexed = INDEX_FLUSH_BATCHES
    flush(box.log)
    assert box.names(".snapshot") == [f"{61:020d}.snapshot"]


def test_many_unflushed_batches_ask_for_a_flush(new_box: Any) -> None:
    box = filled(new_box, 1)
    assert not flush_is_due(box.log, box.clock.ms)
    box.log.batches_unindexed = UNFLUSHED_BATCHES_MAX
    assert flush_is_due(box.log, box.clock.ms)
    flush(box.log)
    assert not flush_is_due(box.log, box.clock.ms)


def test_a_recovery_point_that_the_indexes_do_not_reach_costs_only_time(new_box: Any) -> None:
    box = filled(new_box, 30, index_interval_bytes=50)
    flush(box.log)
    before = box.values()
    box.path(0, ".index").write_bytes(os.urandom(80))
    box.crash()
    assert box.values() == before
    assert box.append().first_offset == 60


def noted_syncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are synced from now on."""
    synced: list[str] = []
    fsync = os.fsync

    def note(fd: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note)
    return synced


def test_a_flush_makes_aborted_transactions_durable(
    new_box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies below the recovery point is not looked at after a loss of power."""
    synced = noted_syncs(monkeypatch)
    box = new_box()
    box.send(7, 0, transactional=True)
    box.end_txn(7, commit=False)
    flush(box.log)
    assert f"{0:020}.txnindex" in synced
    synced.clear()
    box.append()
    flush(box.log)
    assert f"{0:020}.txnindex" not in synced


def with_a_flushed_abort(new_box: Any, damaged: str) -> Any:
    """A log whose recovery point is above an aborted transaction, and whose check begins below."""
    box = new_box(index_interval_bytes=50)
    box.send(7, 0, transactional=True)
    box.end_txn(7, commit=False)
    for _ in range(10):
        box.append()
    flush(box.log)
    with box.path(0, damaged).open("ab") as file:
        file.write(b"torn ")
    return box


@pytest.mark.parametrize("damaged", [".index", ".txnindex"])
def test_aborted_transactions_that_are_found_again_are_durable_before_they_are_relied_on(
    new_box: Any, monkeypatch: pytest.MonkeyPatch, damaged: str
) -> None:
    """The recovery point stays above them: after another loss of power nothing would find them."""
    box = with_a_flushed_abort(new_box, damaged)
    synced = noted_syncs(monkeypatch)
    log = box.crash()
    assert [t.first_offset for t in log.aborted_transactions(0, 12)] == [0]
    assert f"{0:020}.txnindex{TMP_SUFFIX}" in synced


@pytest.mark.parametrize("damaged", [".index", ".txnindex"])
@pytest.mark.uncompiled
def test_aborted_transactions_that_cannot_be_written_again_leave_the_file_as_it_was(
    new_box: Any, monkeypatch: pytest.MonkeyPatch, damaged: str
) -> None:
    box = with_a_flushed_abort(new_box, damaged)
    before = box.path(0, ".txnindex").read_bytes()
    with monkeypatch.context() as broken:
        broken.setattr(index, "write_atomically", full)
        log = box.crash()
    assert [t.first_offset for t in log.aborted_transactions(0, 12)] == [0]
    assert box.path(0, ".txnindex").read_bytes() == before
    assert "cannot be rebuilt" in log.failure
    assert box.crash().failure is None


def full(path: str, data: bytes) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", path)


def test_half_a_batch_behind_the_recovery_point_does_not_keep_the_producers_from_loading(
    new_box: Any,
) -> None:
    box = new_box(index_interval_bytes=0)
    box.append(b"kept")
    flush(box.log)
    box.append(b"torn")
    os.truncate(box.path(0, ".log"), box.path(0, ".log").stat().st_size - 1)
    log = box.crash()
    assert log.failure is None
    assert box.values() == {0: b"kept"}
    box.append(b"again")
    assert box.values() == {0: b"kept", 1: b"again"}


@pytest.mark.parametrize("left", [b"", b"0\n3\n0 0\n", None], ids=["empty", "torn", "gone"])
@pytest.mark.parametrize("how", ["crash", "reopen_clean"])
def test_leader_epochs_whose_file_is_lost_are_read_from_the_batches(
    new_box: Any, left: bytes | None, how: str
) -> None:
    box = new_box(segment_bytes=300)
    for epoch in (0, 0, 2, 5):
        box.append(epoch=epoch)
    flush(box.log)
    box.append(epoch=7)
    entries = box.log.epochs.entries
    if how == "reopen_clean":
        close_logs([box.log])
    file = box.dir / "leader-epoch-checkpoint"
    file.unlink() if left is None else file.write_bytes(left)
    again = box.crash() if how == "crash" else box.load(clean=True, recovery_point=5)
    assert again.epochs.entries == entries == [(0, 0), (2, 2), (5, 3), (7, 4)]
    box.log = again
