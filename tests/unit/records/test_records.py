"""Records inside batches: round trips, deep validation, and arbitrary bytes behind a right CRC."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import CorruptRecord
from penstock.wire.compression import compress
from penstock.wire.records import (
    HEADER_SIZE,
    BatchHeader,
    Compression,
    ControlType,
    EndTxnMarker,
    Record,
    assemble,
    build_batch,
    build_end_txn_marker,
    check_batch,
    control_type,
    parse_end_txn_marker,
    parse_header,
    read_records,
    recompress,
)

INT64 = st.integers(-(2**63), 2**63 - 1)
TIMESTAMPS = st.integers(-1, 2**62)
BYTES = st.none() | st.binary(max_size=200)
# Header keys of any bytes: those that are not UTF-8 arrive as surrogate escapes.
NAMES = st.binary(max_size=20).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
RECORDS = st.lists(
    st.builds(
        Record,
        st.just(0),
        TIMESTAMPS,
        BYTES,
        BYTES,
        st.lists(st.tuples(NAMES, BYTES), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
)
PLAIN = [Record(i, 100 + i, b"k", b"value", (("h", b"x"),)) for i in range(3)]


@settings(max_examples=200, deadline=None)
@given(RECORDS, st.integers(0, 2**60), st.sampled_from(Compression))
def test_round_trip(records: list[Record], base_offset: int, kind: Compression) -> None:
    batch = build_batch(records, base_offset=base_offset, compression=kind)
    expected = [r._replace(offset=base_offset + i) for i, r in enumerate(records)]
    assert check_batch(batch).max_timestamp == max(r.timestamp for r in records)
    assert read_records(batch) == expected
    assert read_records(memoryview(batch)) == expected


@settings(max_examples=60, deadline=None)
@given(RECORDS, st.sampled_from(Compression), st.sampled_from(Compression))
def test_recompress_changes_the_packing_only(
    records: list[Record], before: Compression, after: Compression
) -> None:
    batch = build_batch(records, compression=before, producer_id=3, base_sequence=9)
    again = recompress(batch, after)
    old, new = check_batch(batch), check_batch(again)
    assert new.compression is after
    assert new == old._replace(crc=new.crc, length=new.length, attributes=int(after))
    assert read_records(again) == read_records(batch)


def test_log_append_time_gives_every_record_the_same_timestamp() -> None:
    batch = build_batch(PLAIN, log_append_time=True)
    assert [r.timestamp for r in read_records(batch)] == [102, 102, 102]


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])


def with_body(body: bytes, count: int = 1, last_delta: int | None = None) -> bytes:
    """A batch with a right CRC around `body`, whatever that is."""
    header = parse_header(build_batch(PLAIN[:1]))
    return assemble(
        header._replace(
            record_count=count, last_offset_delta=count - 1 if last_delta is None else last_delta
        ),
        body,
    )


# length, attributes, timestamp delta, offset delta, key, value, headers; varints are zigzag.
SMALLEST = b"\x0c\x00\x00\x00\x01\x01\x00"


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b"", 1),
        (SMALLEST, 2),
        (SMALLEST, 0),
        (SMALLEST, -1),
        (SMALLEST + b"\x00", 1),
        (b"\x0e" + SMALLEST[1:], 1),
        (b"\x0e" + SMALLEST[1:] + b"\x00", 1),
        (b"\x0a" + SMALLEST[1:], 1),
        (b"\x0b" + SMALLEST[1:], 1),
        (b"\x0c\x00\x00\x02\x01\x01\x00", 1),
        (b"\x0c\x00\x00\x01\x01\x01\x00", 1),
        (b"\x0c\x00\x00\x00\x03\x01\x00", 1),
        (b"\x0c\x00\x00\x00\x02\x01\x00", 1),
        (b"\x0c\x00\x00\x00\x01\x40\x00", 1),
        (b"\x0c\x00\x00\x00\x01\x01\x01", 1),
        (b"\x0c\x00\x00\x00\x01\x01\x02", 1),
        (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", 1),
        (b"\x0c\x00\xff\xff\xff\xff\xff", 1),
        (b"\xff\xff\xff\xff\xff\xff" + SMALLEST, 1),
        (SMALLEST + SMALLEST, 2),
    ],
)
def test_records_that_lie_are_refused(body: bytes, count: int) -> None:
    batch = with_body(body, count)
    check_batch(batch)
    with pytest.raises(CorruptRecord):
        read_records(batch)


def test_gaps_left_by_compaction_are_read() -> None:
    body = SMALLEST + b"\x0c\x00\x00\x06\x01\x01\x00"
    assert [r.offset for r in read_records(with_body(body, 2, last_delta=9))] == [0, 3]
    assert read_records(with_body(b"", 0, last_delta=9)) == []


def test_a_batch_must_be_handed_over_whole_and_alone() -> None:
    batch = build_batch(PLAIN)
    for wrong in (batch[:-1], batch + b"\x00"):
        with pytest.raises(CorruptRecord, match="handed over"):
            read_records(wrong)


def test_a_batch_that_unpacks_beyond_the_limit_is_refused() -> None:
    batch = build_batch([Record(0, 0, None, bytes(500_000))], compression=Compression.GZIP)
    assert len(read_records(batch, max_bytes=600_000)[0].value or b"") == 500_000
    with pytest.raises(CorruptRecord, match="more than"):
        read_records(batch, max_bytes=400_000)


@settings(max_examples=400, deadline=None)
@given(
    st.binary(max_size=300),
    st.integers(-5, 2**31 - 1),
    st.integers(-1, 2**31 - 1),
    st.sampled_from(Compression),
)
def test_arbitrary_bytes_neither_hang_nor_allocate(
    body: bytes, count: int, last_delta: int, kind: Compression
) -> None:
    header = parse_header(build_batch(PLAIN[:1]))._replace(
        record_count=count, last_offset_delta=last_delta, attributes=int(kind)
    )
    check_bounded(header, body if kind is Compression.NONE else compress(kind, body))


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
def test_mutated_records_neither_hang_nor_allocate(mutations: list[tuple[int, int]]) -> None:
    batch = build_batch(PLAIN)
    body = bytearray(batch[HEADER_SIZE:])
    for at, value in mutations:
        body[at % len(body)] = value
    check_bounded(parse_header(batch), body)


def check_bounded(header: BatchHeader, body: bytes | bytearray) -> None:
    batch = assemble(header, body)
    check_batch(batch)
    tracemalloc.start()
    started = time.thread_time()
    try:
        for record in read_records(batch, max_bytes=100_000):
            assert header.base_offset <= record.offset <= header.last_offset
    except CorruptRecord:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 500_000
    assert time.thread_time() - started < 1


def test_control_records() -> None:
    marker = EndTxnMarker(commit=False, coordinator_epoch=3)
    batch = build_end_txn_marker(
        marker, producer_id=1, producer_epoch=0, timestamp=7, base_offset=5
    )
    header = check_batch(batch)
    assert header.is_control
    assert header.is_transactional
    (record,) = read_records(batch)
    assert (record.offset, record.timestamp) == (5, 7)
    assert control_type(record) is ControlType.ABORT
    assert parse_end_txn_marker(record) == marker
    assert control_type(record._replace(key=b"\x00\x00\x00\x63")) is ControlType.UNKNOWN
    leader_change = record._replace(key=b"\x00\x00\x00\x02")
    assert control_type(leader_change) is ControlType.LEADER_CHANGE
    for wrong in (leader_change, record._replace(value=b"\x00")):
        with pytest.raises(CorruptRecord):
            parse_end_txn_marker(wrong)
    for key in (None, b"\x00"):
        with pytest.raises(CorruptRecord, match="no type"):
            control_type(record._replace(key=key))
