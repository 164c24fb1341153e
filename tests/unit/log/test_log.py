"""Append, read, roll, search by time, retention, truncation, flush: one log in its directory."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import Any

import pytest

from penstock.base.errors import ApiError, CorruptRecord, ErrorCode, InvariantBroken, StorageError
from penstock.log.closing import close_begin
from penstock.log.flush import flush, flush_begin, flush_done, flush_is_due
from penstock.log.log import Batch, Log
from penstock.log.retention import delete_old_segments
from penstock.log.time_lookup import MAX_TIMESTAMP
from penstock.wire.records import Compression, Record, build_batch, check_batches, parse_header
from support.lookups import looked_up


def batch_of(*values: bytes, timestamp: int = 1_000, **more: Any) -> Batch:
    data = build_batch([Record(0, timestamp, None, v) for v in values], **more)
    return Batch(parse_header(data), memoryview(data))


def test_offsets_and_epoch_are_patched_and_the_rest_is_kept(box: Any) -> None:
    one, two = batch_of(b"a", b"b"), batch_of(b"c", compression=Compression.ZSTD)
    info = box.log.append([one, two], 3, box.clock.ms)
    assert (info.first_offset, info.last_offset, info.duplicate) == (0, 2, False)
    data = memoryview(box.log.read(0, 1 << 20, up_to_offset=3).read())
    headers = [h for _, h in check_batches(data)]
    assert [(h.base_offset, h.partition_leader_epoch) for h in headers] == [(0, 3), (2, 3)]
    assert data[16 : headers[0].size] == one.data[16:]
    assert data[headers[0].size + 16 :] == two.data[16:]


@pytest.mark.parametrize("kind", [bytes, memoryview, bytearray])
def test_small_and_large_payloads_of_any_kind_are_written_unchanged(box: Any, kind: Any) -> None:
    for size in (10, 5_000, 300_000):
        data = build_batch([Record(0, 1, None, os.urandom(size))])
        box.log.append([Batch(parse_header(data), memoryview(kind(data)))], 0, 1)
    whole = bytes(box.log.read(0, 1 << 20, up_to_offset=3).read())
    assert [h.base_offset for _, h in check_batches(whole)] == [0, 1, 2]


def test_more_staged_batches_than_one_system_call_takes(box: Any) -> None:
    for i in range(3_000):
        box.log.stage([batch_of(b"%04d" % i + b"x" * 100)], 0, 1)
    box.log.write_staged()
    assert len(box.values()) == 3_000
    assert box.values(2_999) == {2_999: b"2999" + b"x" * 100}


def test_nothing_staged_is_visible_before_it_is_written(box: Any) -> None:
    info = box.log.stage([batch_of(b"a")], 0, 1)
    assert info.first_offset == 0
    assert box.log.log_end_offset == 0
    assert box.values() == {}
    box.log.write_staged()
    assert box.values() == {0: b"a"}


def test_what_is_staged_is_written_before_the_log_is_changed_otherwise(box: Any) -> None:
    for number, change in enumerate((flush, Log.roll)):
        box.log.stage([batch_of(b"%d" % number)], 0, 1)
        change(box.log)
        assert box.log.log_end_offset == number + 1
    assert box.values() == {0: b"0", 1: b"1"}


def test_the_owner_writes_what_is_staged(box: Any) -> None:
    written = []
    box.log.before_change = lambda: written.append(box.log.write_staged())
    flush(box.log)
    assert not written
    box.log.stage([batch_of(b"a")], 0, 1)
    flush(box.log)
    assert len(written) == 1
    box.log.before_change = lambda: None
    box.log.stage([batch_of(b"b")], 0, 1)
    with pytest.raises(InvariantBroken, match="stays staged"):
        flush(box.log)


def test_a_log_that_was_abandoned_writes_nothing_more(box: Any) -> None:
    box.append(b"a")
    box.log.stage([batch_of(b"b")], 0, 1)
    box.log.abandon("an invariant is broken")
    with pytest.raises(StorageError, match="refuses writes"):
        box.log.stage([batch_of(b"c")], 0, 1)
    with pytest.raises(StorageError, match="was abandoned"):
        close_begin(box.log)
    assert box.log.log_end_offset == 1


def test_reads_stop_at_the_bounds(box: Any) -> None:
    for i in range(10):
        box.append(b"%d" % i)
    log = box.log
    size = log.size_bytes // 10
    assert log.read(10, 1, up_to_offset=10) is None
    assert log.read(5, 1 << 20, up_to_offset=5) is None
    assert len(log.read(2, 1 << 20, up_to_offset=5).read()) == 3 * size
    assert len(log.read(2, 1, up_to_offset=10).read()) == size
    assert len(log.read(2, 1, up_to_offset=10, min_one=False).read()) == 0
    assert len(log.read(2, 2 * size + 5, up_to_offset=10).read()) == 2 * size
    for offset in (-1, 11):
        with pytest.raises(ApiError) as e:
            log.read(offset, 1, up_to_offset=10)
        assert e.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_read_in_the_middle_of_a_batch_returns_the_whole_batch(box: Any) -> None:
    box.append(b"a", b"b", b"c")
    box.append(b"d")
    assert box.log.read(2, 1, up_to_offset=4).base_offset == 0
    assert box.values(2) == {2: b"c", 3: b"d"}


def test_rolls_by_size_and_reads_across_segments(new_box: Any) -> None:
    box = new_box(segment_bytes=1_000, index_interval_bytes=100)
    expected = {i: b"%03d" % i + b"x" * (i % 150) for i in range(200)}
    for value in expected.values():
        box.append(value)
    assert len(box.log.segments) > 10
    assert all(s.size <= 1_000 for s in box.log.segments)
    for log in (box.log, box.reopen_clean(), box.crash(), box.crash(recovery_point=0)):
        assert log.log_end_offset == 200
        assert box.values() == expected
        assert box.values(max_bytes=1) == expected
        for offset in range(200):
            assert next(iter(box.values(offset).items())) == (offset, expected[offset])


def test_rolls_by_time_counted_from_the_first_batch_less_the_jitter(new_box: Any) -> None:
    box = new_box(segment_ms=100, segment_jitter_ms=11)
    for timestamp in (1_000, 1_090, 1_091, 1_180):
        box.append(timestamp=timestamp)
    assert [s.base_offset for s in box.log.segments] == [0, 2]
    box.reopen_clean()
    box.append(timestamp=1_182)
    assert [s.base_offset for s in box.log.segments] == [0, 2, 4]


def test_records_without_time_roll_by_the_clock(new_box: Any) -> None:
    box = new_box(segment_ms=100)
    box.append(timestamp=-1)
    box.clock.ms += 101
    box.append(timestamp=-1)
    assert [s.base_offset for s in box.log.segments] == [0, 1]


def test_rolls_when_an_index_is_full(new_box: Any) -> None:
    box = new_box(index_interval_bytes=0, segment_index_bytes=36)
    for _ in range(8):
        box.append()
    assert len(box.log.segments) > 1
    assert all(os.path.getsize(p) <= 36 for p in box.dir.glob("*index"))
    assert len(box.values()) == 8


def test_rolls_before_offsets_outgrow_the_index(box: Any) -> None:
    far = 2**31 + 5
    box.append()
    for base in (1, far):
        box.log.append_as_follower(build_batch([Record(0, 1, None, b"f")], base_offset=base))
    assert [s.base_offset for s in box.log.segments] == [0, far]
    assert box.values() == {0: b"v", 1: b"f", far: b"f"}


def test_a_follower_keeps_offsets_epochs_and_gaps(box: Any) -> None:
    pieces = [
        build_batch([Record(0, 1, None, b"a")], base_offset=5, partition_leader_epoch=1),
        build_batch([Record(0, 1, None, b"b")], base_offset=9, partition_leader_epoch=4),
    ]
    box.log.append_as_follower(b"".join(pieces))
    assert box.values() == {5: b"a", 9: b"b"}
    assert box.log.epoch_end_offset(1) == (1, 9)
    assert box.log.epoch_end_offset(4) == (4, 10)
    with pytest.raises(CorruptRecord):
        box.log.append_as_follower(pieces[1])
    with pytest.raises(CorruptRecord):
        box.log.append_as_follower(pieces[1][:-1])
    assert box.log.log_end_offset == 10
    later = build_batch([Record(0, 1, None, b"c")], base_offset=10, partition_leader_epoch=6)
    with pytest.raises(CorruptRecord, match="leader of epoch 5 sent offset 10 of epoch 6"):
        box.log.append_as_follower(later, 5)
    box.log.append_as_follower(later, 6)
    assert box.log.log_end_offset == 11


def test_more_in_one_append_than_a_segment_holds_is_refused(new_box: Any) -> None:
    box = new_box(segment_bytes=1_000)
    with pytest.raises(ApiError) as e:
        box.append(b"x" * 1_000)
    assert e.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    box.append(b"fits")
    assert box.values() == {0: b"fits"}


def test_offsets_by_time(new_box: Any) -> None:
    box = new_box(segment_bytes=500, index_interval_bytes=0)
    times = [100, 300, 200, 500, 400, 700, 600, 900, 800, 1_000]
    for i in range(0, 10, 2):
        records = [Record(0, t, None, b"x" * 50) for t in times[i : i + 2]]
        data = build_batch(records)
        box.log.append([Batch(parse_header(data), data)], 2, 1)
    assert len(box.log.segments) > 2
    for log in (box.log, box.reopen_clean(), box.crash(recovery_point=0)):
        for wanted in range(0, 1_010, 50):
            first = next(((t, o) for o, t in enumerate(times) if t >= wanted), None)
            found = looked_up(log, wanted)
            assert (found and found[:2]) == first
            assert found is None or found.leader_epoch == 2
        assert looked_up(log, MAX_TIMESTAMP)[:2] == (1_000, 9)
    log.delete_records(4)
    assert looked_up(log, 0)[:2] == (400, 4)


def test_the_greatest_timestamp_is_the_first_of_its_kind(box: Any) -> None:
    assert looked_up(box.log, MAX_TIMESTAMP) is None
    for timestamp in (5, 9, 9, 3):
        box.append(timestamp=timestamp)
    assert looked_up(box.log, MAX_TIMESTAMP)[:2] == (9, 1)
    box.reopen_clean()
    assert looked_up(box.log, MAX_TIMESTAMP)[:2] == (9, 1)


def test_log_append_time_is_reported(box: Any) -> None:
    assert box.append(timestamp=77).log_append_time == -1
    assert box.append(timestamp=78, log_append_time=True).log_append_time == 78


def test_deleted_records_are_gone_and_stay_gone(new_box: Any) -> None:
    box = new_box(segment_bytes=150, file_delete_delay_ms=10)
    for i in range(6):
        box.append(b"%d" % i)
    box.log.delete_records(3)
    assert sorted(box.values()) == [3, 4, 5]
    with pytest.raises(ApiError):
        box.log.read(2, 1, up_to_offset=6)
    with pytest.raises(ApiError):
        box.log.delete_records(7)
    delete_old_segments(box.log, box.clock.ms)
    assert box.log.segments[0].base_offset <= 3 < box.log.segments[1].base_offset
    assert box.names(".log.deleted")
    box.remove_deleted(box.clock.ms + 9)
    assert box.names(".log.deleted")
    box.remove_deleted(box.clock.ms + 10)
    assert not box.names(".deleted")
    for _ in range(2):
        box.crash()
        assert sorted(box.values()) == [3, 4, 5]


def test_retention_by_time_takes_whole_segments_and_even_the_active_one(new_box: Any) -> None:
    box = new_box(segment_bytes=150, retention_ms=1_000)
    for i in range(6):
        box.append(timestamp=i * 500)
    assert delete_old_segments(box.log, 1_600) == 1
    assert box.log.log_start_offset == box.log.segments[0].base_offset == 2
    assert delete_old_segments(box.log, 10_000) == 2
    assert (box.log.log_start_offset, box.log.log_end_offset) == (6, 6)
    box.reopen_clean()
    assert box.log.log_end_offset == 6
    assert box.append().first_offset == 6


def test_retention_by_size_keeps_at_least_what_is_asked_for(new_box: Any) -> None:
    box = new_box(segment_bytes=150, retention_bytes=200, retention_ms=-1)
    for _ in range(10):
        box.append()
    delete_old_segments(box.log, 1)
    assert 200 <= box.log.size_bytes < 200 + 150


def test_retention_spares_what_is_not_committed_and_what_is_only_compacted(new_box: Any) -> None:
    box = new_box(segment_bytes=150, retention_bytes=0)
    for _ in range(6):
        box.append()
    box.log.update_high_watermark(3)
    assert delete_old_segments(box.log, 1) == 1
    box.log.config = replace(box.config, cleanup_policy=frozenset({"compact"}))
    box.log.update_high_watermark(6)
    assert delete_old_segments(box.log, 1) == 0


def test_a_slice_survives_the_deletion_of_its_segment(new_box: Any) -> None:
    box = new_box(retention_bytes=0, file_delete_delay_ms=5)
    box.append(b"still here")
    box.append(b"what was written last is read from memory")
    piece = box.log.read(0, 1 << 20, up_to_offset=1)
    delete_old_segments(box.log, 0)
    assert len(piece.read()) > 0
    box.remove_deleted(5)
    with pytest.raises(StorageError):
        piece.read()


def test_truncation_to_every_offset(new_box: Any) -> None:
    for target in range(31):
        box = new_box(segment_bytes=400, index_interval_bytes=50)
        for i in range(10):
            box.append(b"%d" % i, b"b", b"c", epoch=i // 4)
        flush(box.log)
        before = box.values()
        box.log.truncate_to(target)
        end = target // 3 * 3
        assert box.log.log_end_offset == end
        assert box.log.recovery_point <= end
        assert box.values() == {o: v for o, v in before.items() if o < end}
        assert all(e.start_offset < max(end, 1) for e in box.log.epochs.entries)
        assert box.append(b"new", epoch=9).first_offset == end
        expected = box.values()
        for start in (box.reopen_clean, box.crash):
            start()
            assert box.values() == expected


def test_truncation_below_the_first_segment_starts_anew(box: Any) -> None:
    box.append()
    box.log.truncate_fully_and_start_at(100)
    assert (box.log.log_start_offset, box.log.log_end_offset) == (100, 100)
    box.append(b"x")
    assert box.values() == {100: b"x"}
    box.log.truncate_to(50)
    assert (box.log.log_start_offset, box.log.log_end_offset) == (50, 50)
    assert box.names(".log") == [f"{50:020d}.log"]


def test_flush_moves_the_recovery_point_to_what_was_there_when_it_began(new_box: Any) -> None:
    box = new_box(segment_bytes=150)
    for _ in range(5):
        box.append()
    task = flush_begin(box.log)
    box.append()
    thread = threading.Thread(target=task.run)
    thread.start()
    thread.join()
    assert box.log.recovery_point == 0
    flush_done(box.log, task)
    assert (box.log.recovery_point, box.log.unflushed_messages) == (5, 1)
    assert all(s.file.pins == 0 for s in box.log.segments)


def test_when_a_flush_is_due(new_box: Any) -> None:
    box = new_box(flush_messages=3, flush_ms=1_000, segment_bytes=1_000)
    assert not flush_is_due(box.log, box.clock.ms + 2_000)
    box.append()
    assert not flush_is_due(box.log, box.clock.ms)
    assert flush_is_due(box.log, box.clock.ms + 1_000)
    box.append(b"1", b"2")
    assert flush_is_due(box.log, box.clock.ms)
    flush(box.log)
    assert not flush_is_due(box.log, box.clock.ms)
    box.append()
    assert not flush_is_due(box.log, box.clock.ms)
    box.append(b"x" * 900)
    assert box.log.rolled_unflushed
    assert flush_is_due(box.log, box.clock.ms)


def test_leader_epochs_survive(box: Any) -> None:
    for epoch in (0, 0, 2, 5):
        box.append(epoch=epoch)
    for log in (box.log, box.reopen_clean(), box.crash()):
        assert log.epoch_end_offset(0) == (0, 2)
        assert log.epoch_end_offset(1) == (0, 2)
        assert log.epoch_end_offset(3) == (2, 3)
        assert log.epoch_end_offset(5) == (5, 4)
        assert log.epoch_end_offset(6) == (-1, -1)
    log.delete_records(3)
    assert log.epoch_end_offset(0) == (0, 3)


def test_counters(box: Any) -> None:
    box.append(b"a", b"b")
    box.append(b"c")
    assert box.log.bytes_in == box.log.size_bytes == os.path.getsize(box.path(0, ".log"))
