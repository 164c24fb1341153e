"""Batch headers: what is read from them, what is refused, what changing them leaves alone."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import ApiError, CorruptRecord, ErrorCode
from penstock.wire.records import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Compression,
    Record,
    build_batch,
    check_batch,
    check_batches,
    check_producer_batch,
    parse_header,
    read_records,
    rewrite_header,
)

RECORDS = [Record(i, 1_000 + i, b"k%d" % i, b"v" * i) for i in range(5)]
BATCH = build_batch(
    RECORDS, base_offset=40, producer_id=8, producer_epoch=1, base_sequence=0x7FFFFFFD
)


def header(**changes: int) -> BatchHeader:
    """The header of `BATCH` as its producer would send it, but for `changes`."""
    return check_batch(BATCH)._replace(**{"base_offset": 0, **changes})


def test_header_fields_and_what_follows_from_them() -> None:
    found = parse_header(b"xyz" + BATCH, 3)
    assert found == BatchHeader(
        base_offset=40,
        length=len(BATCH) - 12,
        partition_leader_epoch=-1,
        magic=2,
        crc=crc32c(BATCH[21:]),
        attributes=0,
        last_offset_delta=4,
        base_timestamp=1_000,
        max_timestamp=1_004,
        producer_id=8,
        producer_epoch=1,
        base_sequence=0x7FFFFFFD,
        record_count=5,
    )
    assert found.size == len(BATCH)
    assert found.last_offset == 44
    assert found.last_sequence == 1, "sequence numbers wrap to 0 after 2^31 - 1"
    assert found._replace(base_sequence=-1).last_sequence == -1
    assert found.compression is Compression.NONE
    assert not found.has_delete_horizon
    flags = found._replace(
        attributes=TIMESTAMP_TYPE_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG
    )
    assert flags.log_append_time
    assert flags.is_transactional
    assert flags.is_control
    assert flags.has_delete_horizon
    with pytest.raises(CorruptRecord, match="no compression has id 5"):
        _ = found._replace(attributes=5).compression


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (BATCH[: HEADER_SIZE - 1], "header takes"),
        (b"", "header takes"),
        (BATCH[:16] + b"\x01" + BATCH[17:], "magic 1"),
        (BATCH[:8] + struct.pack(">i", 48) + BATCH[12:], "impossible length"),
        (BATCH[:8] + struct.pack(">i", -1) + BATCH[12:], "impossible length"),
        (BATCH[:-1], "only"),
        (BATCH[:-1] + b"\xee", "CRC"),
    ],
)
def test_damage_is_named(damaged: bytes, why: str) -> None:
    with pytest.raises(CorruptRecord, match=why):
        check_batch(damaged)


@settings(max_examples=300)
@given(st.integers(21, len(BATCH) - 1), st.integers(1, 255))
def test_any_change_inside_the_crc_is_detected(at: int, flip: int) -> None:
    damaged = bytearray(BATCH)
    damaged[at] ^= flip
    with pytest.raises(CorruptRecord):
        check_batch(damaged)


def test_check_batches_wants_the_buffer_exactly_filled() -> None:
    other = build_batch(RECORDS[:1], base_offset=45)
    found = check_batches(memoryview(BATCH + other))
    assert [pos for pos, _ in found] == [0, len(BATCH)]
    assert [h.base_offset for _, h in found] == [40, 45]
    assert check_batches(b"") == []
    for tail in (other[:-1], b"\x00"):
        with pytest.raises(CorruptRecord):
            check_batches(BATCH + tail)


def test_a_correct_producer_batch_passes() -> None:
    check_producer_batch(header())
    check_producer_batch(header(producer_id=-1, producer_epoch=-1, base_sequence=-1))
    check_producer_batch(header(attributes=TRANSACTIONAL_FLAG | Compression.ZSTD))
    check_producer_batch(header(attributes=CONTROL_FLAG), control_allowed=True)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"record_count": 0, "last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
        ({"record_count": 4}, ErrorCode.INVALID_RECORD),
        ({"base_offset": 40}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 5}, ErrorCode.INVALID_RECORD),
        ({"record_count": 500, "last_offset_delta": 499}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x80}, ErrorCode.INVALID_RECORD),
        ({"attributes": -0x8000}, ErrorCode.INVALID_RECORD),
        ({"attributes": DELETE_HORIZON_FLAG}, ErrorCode.INVALID_RECORD),
        ({"attributes": CONTROL_FLAG}, ErrorCode.INVALID_RECORD),
        ({"attributes": TIMESTAMP_TYPE_FLAG}, ErrorCode.INVALID_TIMESTAMP),
        ({"attributes": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"producer_epoch": -1}, ErrorCode.INVALID_RECORD),
        ({"base_sequence": -1}, ErrorCode.INVALID_RECORD),
        ({"producer_id": -1, "attributes": TRANSACTIONAL_FLAG}, ErrorCode.INVALID_RECORD),
    ],
)
def test_a_wrong_producer_batch_is_refused(changes: dict[str, int], code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refused:
        check_producer_batch(header(**changes))
    assert refused.value.code is code


def test_a_rewritten_header_has_a_right_crc_and_keeps_the_rest() -> None:
    buf = bytearray(BATCH + BATCH)
    before = check_batch(buf)
    after = rewrite_header(buf, len(BATCH), max_timestamp=99, attributes=TIMESTAMP_TYPE_FLAG)
    assert check_batch(buf, len(BATCH)) == after
    assert after == before._replace(max_timestamp=99, attributes=TIMESTAMP_TYPE_FLAG, crc=after.crc)
    assert check_batch(buf) == before
    assert {r.timestamp for r in read_records(buf[len(BATCH) :])} == {99}
    assert read_records(buf[: len(BATCH)])[0].timestamp == 1_000
    assert rewrite_header(buf, producer_epoch=5, base_timestamp=7).producer_epoch == 5
    assert read_records(buf[: len(BATCH)])[1].timestamp == 8
