"""What a cleaning keeps and drops, on real files."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import CorruptRecord
from penstock.log.cleaner_filter import MAP_ENTRY_BYTES
from penstock.log.cleaner_job import ProducerEnd
from penstock.log.cleaner_worker import clean
from penstock.wire.records import Compression, Record, check_batches
from support.lookups import looked_up

DAY_MS = 86_400_000
NOBODY: list[ProducerEnd] = []


def test_the_latest_value_of_each_key_stays_with_its_offset(log: Any) -> None:
    log.put(("a", "1"), ("b", "1"), ("c", "1"))
    log.put(("a", "2"))
    log.put(("b", "2"), ("a", "3"))
    result = log.clean()
    assert log.pairs() == [(2, "c", "1"), (4, "b", "2"), (5, "a", "3")]
    assert (result.messages_before, result.messages_after) == (6, 3)
    assert result.end_offset == 6
    assert result.keys == 3
    assert result.bytes_after < result.bytes_before
    assert log.log.log_end_offset == 6


def test_a_later_round_knows_what_an_earlier_one_left(log: Any) -> None:
    log.put(("a", "1"), ("b", "1"))
    log.clean()
    log.put(("b", "2"))
    log.clean()
    assert log.pairs() == [(0, "a", "1"), (2, "b", "2")]
    assert log.checkpoint == 3


def test_the_active_segment_is_left_alone(log: Any) -> None:
    log.put(("a", "1"))
    log.log.roll()
    log.put(("a", "2"))
    result = clean(log.job(), lambda _: None)
    log.swap(result)
    assert log.pairs() == [(0, "a", "1"), (1, "a", "2")]
    assert result.end_offset == 1


def test_an_untouched_batch_is_copied_byte_by_byte(log: Any) -> None:
    log.put(("a", "1"), ("b", "1"), compression=Compression.ZSTD)
    log.put(("c", "1"), producer_id=5, producer_epoch=0, base_sequence=0)
    before = Path(log.log.segments[0].file.path).read_bytes()
    log.clean()
    assert Path(log.log.segments[0].file.path).read_bytes() == before


@pytest.mark.parametrize("kind", list(Compression))
def test_a_rebuilt_batch_keeps_everything_but_the_dropped_records(
    log: Any, kind: Compression
) -> None:
    records = [
        Record(0, 1_000 + 70_000 * i, b"k%d" % i * (1 + i % 9), b"v" * i, (("h", b"%d" % i),))
        for i in range(40)
    ]
    log.append(records, compression=kind, producer_id=7, producer_epoch=2, base_sequence=11)
    log.append([records[39], records[3]], compression=kind)
    (before, kept), _ = log.batches()
    log.clean()
    (after, found), _ = log.batches()
    expected = [r for i, r in enumerate(kept) if i not in (3, 39)]
    assert found == expected
    assert after.compression is kind
    assert after.max_timestamp == max(r.timestamp for r in expected)
    same = (
        "base_offset",
        "last_offset_delta",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "base_timestamp",
        "partition_leader_epoch",
        "attributes",
    )
    assert [getattr(after, f) for f in same] == [getattr(before, f) for f in same]


def test_log_append_time_survives(log: Any) -> None:
    records = [Record(0, 500 + i, b"k%d" % i, b"v") for i in range(3)]
    log.append(records, log_append_time=True)
    log.append([records[2]], log_append_time=True)
    log.clean()
    assert [(r.offset, r.timestamp) for r in log.records()] == [(0, 502), (1, 502), (3, 502)]


def test_records_without_a_key_are_dropped_and_counted(log: Any) -> None:
    log.append(
        [Record(0, 1, None, b"x"), Record(0, 1, b"", b"empty key"), Record(0, 1, b"k", b"v")]
    )
    log.append([Record(0, 1, None, None)])
    result = log.clean()
    assert [r.key for r in log.records()] == [b"", b"k"]
    assert result.invalid_messages == 2


def test_long_keys_that_differ_late_are_told_apart(log: Any) -> None:
    long = "k" * 300
    log.put((long + "1", "a"), (long + "2", "b"), (long[:15], "c"), (long[:16], "d"))
    log.put((long + "2", "e"), (long[:16], "f"))
    log.clean()
    assert [value for _, _, value in log.pairs()] == ["a", "c", "e", "f"]


def test_a_tombstone_stays_until_its_horizon(log: Any) -> None:
    log.put(("a", "1"), ("b", "1"))
    log.put(("a", None), ("c", "1"))
    stamp = log.now_ms
    log.now_ms += 5_000
    log.clean()
    assert log.pairs() == [(1, "b", "1"), (2, "a", None), (3, "c", "1")]
    header = log.batches()[1][0]
    assert header.has_delete_horizon
    assert header.base_timestamp == log.now_ms + DAY_MS
    assert header.max_timestamp == stamp
    assert [r.timestamp for r in log.records()] == [stamp] * 3

    log.now_ms += DAY_MS - 1
    log.put(("d", "1"))
    log.clean()
    assert (2, "a", None) in log.pairs()
    assert log.batches()[1][0].base_timestamp == header.base_timestamp

    log.now_ms += 1
    log.put(("e", "1"))
    log.clean()
    assert log.pairs() == [(1, "b", "1"), (3, "c", "1"), (4, "d", "1"), (5, "e", "1")]
    assert [r.timestamp for r in log.records()][:2] == [stamp] * 2


def test_a_tombstone_under_a_newer_value_goes_at_once(log: Any) -> None:
    log.put(("a", None))
    log.put(("a", "2"))
    log.clean()
    assert log.pairs() == [(1, "a", "2")]


def test_a_full_map_cleans_as_far_as_it_reaches(log: Any) -> None:
    for i in range(40):
        log.put(*((f"key-{j}", f"{i}") for j in range(i, i + 10)))
    result = log.clean(dedupe_buffer_bytes=MAP_ENTRY_BYTES * 25)
    assert result.keys <= 25
    assert 0 < result.end_offset < log.log.log_end_offset
    below = [key for offset, key, _ in log.pairs() if offset < result.end_offset]
    assert len(below) == len(set(below))
    above = [offset for offset, _, _ in log.pairs() if offset >= result.end_offset]
    assert above == list(range(result.end_offset, 400))
    rounds = 1
    while log.checkpoint < 400:
        log.clean(dedupe_buffer_bytes=MAP_ENTRY_BYTES * 25)
        rounds += 1
    assert rounds < 40
    assert {key: value for _, key, value in log.pairs()} == {
        f"key-{j}": f"{min(j, 39)}" for j in range(49)
    }
    assert len(log.pairs()) == 49


def test_a_batch_with_more_keys_than_the_map_still_gets_cleaned(log: Any) -> None:
    log.put(*((f"{i}", "1") for i in range(100)))
    log.put(("1", "2"))
    result = log.clean(dedupe_buffer_bytes=MAP_ENTRY_BYTES * 3)
    assert result.end_offset >= 100


def test_segments_are_merged_up_to_the_segment_size(make_log: Callable[..., Any]) -> None:
    log = make_log(segment_bytes=14_000)
    for i in range(60):
        log.put((f"{i % 20}", "x" * 1_000))
    first = log.clean()
    assert len(first.groups) > 1
    assert all(len(group.replaces) == 1 for group in first.groups)
    log.put(("new", "y"))
    second = log.clean()
    assert len(second.groups) < len(first.groups)
    assert len(second.groups[0].replaces) > 1
    assert all(s.size <= 14_000 for s in log.log.segments)
    assert len(log.pairs()) == 21


def test_an_emptied_segment_still_spans_its_offsets(make_log: Callable[..., Any]) -> None:
    log = make_log(segment_bytes=2_000)
    for i in range(10):
        log.put(("same", f"{i}" * 1_500))
    result = log.clean()
    assert [value[0] for _, _, value in log.pairs()] == ["9"]
    for group, segment in zip(result.groups, log.log.segments, strict=False):
        assert segment.next_offset() > group.replaces[-1]


def test_reads_by_offset_and_by_time_find_their_way(make_log: Callable[..., Any]) -> None:
    log = make_log(index_interval_bytes=200)
    for i in range(300):
        log.now_ms += 10
        log.put((f"{i % 120}", f"{i}" * 20), (f"x{i}", "1"))
    log.clean()
    log.reload()
    kept = log.records()
    assert len(kept) == 420
    for record in kept[::7]:
        data = log.log.read(record.offset, 1, up_to_offset=log.log.log_end_offset).read()
        header = check_batches(data)[0][1]
        assert header.base_offset <= record.offset <= header.last_offset
        found = looked_up(log.log, record.timestamp)
        assert found is not None
        first = next(r for r in kept if r.timestamp >= record.timestamp)
        assert (found.timestamp, found.offset) == (first.timestamp, first.offset)
    indexed = log.log.segments[0].offset_index
    assert indexed.last_entry()[1] > 0


def test_indexes_name_the_batches_that_are_there(make_log: Callable[..., Any]) -> None:
    log = make_log(index_interval_bytes=300)
    for i in range(200):
        log.now_ms += 17 if i % 3 else -5
        log.put((f"{i % 70}", "x" * 50), (f"x{i}", "1"))
    log.clean()
    segment = log.log.segments[0]
    data = Path(segment.file.path).read_bytes()
    batches = check_batches(data)
    ends = {pos: header.last_offset for pos, header in batches}
    raw = Path(segment.offset_index.path).read_bytes()
    entries = list(struct.iter_unpack(">II", raw))
    assert len(entries) > len(data) / 600
    assert all(ends[position] == offset for offset, position in entries)
    first_with: dict[int, int] = {}
    for _, header in batches:
        first_with.setdefault(header.max_timestamp, header.last_offset)
    times = list(struct.iter_unpack(">qI", Path(segment.time_index.path).read_bytes()))
    assert all(first_with[stamp] == offset for stamp, offset in times)
    assert times == sorted(times)
    assert times[-1][0] == max(first_with)


def test_a_gap_at_the_end_of_the_dirty_section_is_clean_too(log: Any) -> None:
    log.put(("a", "1"))
    log.log.roll()
    result = clean(log.job(first_uncleanable_offset=50), lambda _: None)
    assert result.end_offset == 50


def test_the_last_batch_of_an_active_producer_stays_as_an_empty_one(log: Any) -> None:
    for i in range(3):
        log.put(("a", f"{i}"), producer_id=9, producer_epoch=4, base_sequence=i)
    log.put(("a", "end"))
    log.clean()
    headers = [header for header, _ in log.batches()]
    assert [(h.last_offset, h.record_count) for h in headers] == [(2, 0), (3, 1)]
    trace = headers[0]
    assert (trace.producer_id, trace.producer_epoch, trace.last_sequence) == (9, 4, 2)
    assert trace.base_timestamp == -1
    log.put(("b", "1"))
    log.clean(NOBODY)
    assert [h.producer_id for h, _ in log.batches()] == [-1, -1]


def test_corrupt_input_ends_the_job_and_leaves_the_log(log: Any) -> None:
    log.put(("a", "1"))
    log.put(("a", "2"))
    log.log.roll()
    path = Path(log.log.segments[0].file.path)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    before = log.files()
    with pytest.raises(CorruptRecord, match="CRC"):
        clean(log.job(), lambda _: None)
    path.write_bytes(data[:-10])
    with pytest.raises(CorruptRecord, match="ends before"):
        clean(log.job(), lambda _: None)
    path.write_bytes(data)
    assert log.files() == before


def test_a_batch_larger_than_a_chunk_is_cleaned(log: Any) -> None:
    log.put(("big", "x" * 3_000_000), ("a", "1"))
    log.put(("a", "2"))
    log.clean()
    assert [(o, k, len(v)) for o, k, v in log.pairs()] == [(0, "big", 3_000_000), (2, "a", 1)]


def test_a_big_log(log: Any) -> None:
    count, per_batch = 200_000, 500
    rng = random.Random(3)
    latest: dict[bytes, int] = {}
    for first in range(0, count, per_batch):
        keys = [b"key-%06d" % rng.randrange(20_000) for _ in range(per_batch)]
        log.append([Record(0, log.now_ms + i, key, b"v" * 78) for i, key in enumerate(keys)])
        latest |= {key: first + i for i, key in enumerate(keys)}
    log.log.roll()
    job = log.job()
    began = time.process_time()
    result = clean(job, lambda _: None)
    print(f"{count / (time.process_time() - began):,.0f} records/s of processor time")
    log.swap(result)
    assert (result.messages_before, result.messages_after) == (count, len(latest))
    assert {r.key: r.offset for r in log.records()} == latest
