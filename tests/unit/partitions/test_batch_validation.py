"""What a producer's batch must be: every refusal with its code and a sentence, every rewriting."""

from __future__ import annotations

import random
import struct
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.limits import PRODUCED_BATCH_UNPACKED_BYTES_MAX
from penstock.config.log_config import LogConfig
from penstock.log.log import Batch
from penstock.partitions.batch_validation import (
    RECORDS_ON_LOOP_MAX,
    RECORDS_WALKED_MAX,
    REPACKED_ON_LOOP_BYTES_MAX,
    UNPACKED_ON_LOOP_BYTES_MAX,
    WALK_SECONDS_MAX,
    BatchRules,
    RecordsRefused,
    UncheckedBatch,
)
from penstock.wire.compression import Compression, compress
from penstock.wire.record_walk import WINDOW_BYTES
from penstock.wire.records import Record, build_batch, check_batch, read_records
from support import batches
from support.batches import Rec

NOW = 1_700_000_000_000
HOUR = 3_600_000
COMPRESSED = [kind for kind in Compression if kind != Compression.NONE]
CONFIG = LogConfig()


def checked(rules: BatchRules, records: memoryview | None, now_ms: int, zstd: bool = True) -> Batch:
    """All the steps at once."""
    batch = rules.accepted(records, now_ms, False, zstd)
    return rules.unpacked(batch, now_ms) if isinstance(batch, UncheckedBatch) else batch


def check(
    records: bytes | None,
    *,
    zstd: bool = True,
    full: bool = False,
    unpack: bool = True,
    now: int = NOW,
    **config: Any,
) -> Batch:
    view = None if records is None else memoryview(records)
    rules = BatchRules(replace(CONFIG, **config), full=full, unpack=unpack)
    return checked(rules, view, now, zstd)


def refusal(records: bytes | None, **how: Any) -> tuple[ErrorCode, str]:
    with pytest.raises(ApiError) as caught:
        check(records, **how)
    assert len(caught.value.message.split()) >= 4, "the refusal says nothing that helps"
    return caught.value.code, caught.value.message


def some(count: int = 3, *, kind: Compression = Compression.NONE, **how: Any) -> bytes:
    records = [Record(i, NOW + i, b"k%d" % i, b"value" * 10) for i in range(count)]
    return build_batch(records, compression=kind, **how)


# -- passed on as it came --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(Compression))
def test_a_good_batch_passes_untouched(kind: Compression) -> None:
    raw = some(kind=kind)
    view = memoryview(raw)
    batch = checked(BatchRules(CONFIG, full=False), view, NOW)
    assert batch.data is view
    assert batch.header == check_batch(raw)


def test_a_batch_with_many_records_is_not_looked_into() -> None:
    """Beyond RECORDS_WALKED_MAX the header is enough, unless full validation is asked for."""
    count = RECORDS_WALKED_MAX + 1
    wrong = batches.batch([b"x"] * count, payload=b"\x7f" * 7 * count)
    assert check(wrong).header.record_count == count
    code, _ = refusal(wrong, full=True)
    assert code == ErrorCode.INVALID_RECORD


# -- refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("records", [None, b""])
def test_no_records(records: bytes | None) -> None:
    code, message = refusal(records)
    assert code == ErrorCode.INVALID_RECORD
    assert "no records" in message


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats(magic: int) -> None:
    code, message = refusal(batches.old_message(b"old", magic))
    assert code == ErrorCode.INVALID_RECORD
    assert f"format {magic}" in message


@pytest.mark.parametrize("magic", [3, 127, -1])
def test_a_magic_from_the_future(magic: int) -> None:
    code, _ = refusal(batches.batch([b"x"], magic=magic))
    assert code == ErrorCode.INVALID_RECORD


def test_cut_off_at_every_length() -> None:
    raw = some(2)
    for cut in range(1, len(raw)):
        code, _ = refusal(raw[:cut])
        assert code == ErrorCode.CORRUPT_MESSAGE, cut


def test_a_wrong_crc() -> None:
    code, message = refusal(batches.batch([b"x"], crc=12345))
    assert code == ErrorCode.CORRUPT_MESSAGE
    assert "CRC" in message


@pytest.mark.parametrize("length", [-1, 0, 48, 2**31 - 1])
def test_an_impossible_length(length: int) -> None:
    code, _ = refusal(batches.batch([b"x"], length=length))
    assert code == ErrorCode.CORRUPT_MESSAGE


def test_more_than_one_batch() -> None:
    code, message = refusal(some() + some())
    assert code == ErrorCode.INVALID_RECORD
    assert "more than one" in message
    code, _ = refusal(some() + b"tail")
    assert code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "fields",
    [
        {"count": 0, "last_offset_delta": -1},
        {"count": -1, "last_offset_delta": -2},
        {"count": 3},
        {"count": 1},
        {"last_offset_delta": 5},
        {"last_offset_delta": -1},
        {"count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
    ],
)
def test_counts_that_do_not_fit(fields: dict[str, int]) -> None:
    code, _ = refusal(batches.batch([b"a", b"b"], **fields))
    assert code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("attributes", [0x20, 0x30, 0x40, 0x80, 0x0100, -0x8000])
def test_attributes_that_no_client_may_set(attributes: int) -> None:
    code, _ = refusal(
        batches.batch(
            [b"x"], attributes=attributes, producer_id=1, producer_epoch=0, base_sequence=0
        )
    )
    assert code == ErrorCode.INVALID_RECORD


def test_a_producer_must_not_claim_log_append_time() -> None:
    code, message = refusal(batches.batch([b"x"], attributes=0x08))
    assert code == ErrorCode.INVALID_TIMESTAMP
    assert "message.timestamp.type" in message


@pytest.mark.parametrize("kind", [5, 6, 7])
def test_an_unknown_compression(kind: int) -> None:
    code, _ = refusal(batches.batch([b"x"], attributes=kind))
    assert code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_zstd_needs_a_new_produce() -> None:
    code, message = refusal(some(kind=Compression.ZSTD), zstd=False)
    assert code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert "7" in message
    check(some(kind=Compression.ZSTD))


@pytest.mark.parametrize(
    "fields",
    [
        {"producer_id": 5},
        {"producer_id": 5, "producer_epoch": 0},
        {"producer_id": 5, "base_sequence": 0},
        {"attributes": 0x10},
    ],
)
def test_half_an_idempotent_producer(fields: dict[str, int]) -> None:
    code, _ = refusal(batches.batch([b"x"], **fields))
    assert code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "payload", [b"\x7f" * 20, b"\x00" * 20, b"\x0c" * 20, b"\xff" * 20, b"\x80" * 20]
)
def test_record_lengths_of_small_batches_are_walked(payload: bytes) -> None:
    code, _ = refusal(batches.batch([b"x", b"y"], payload=payload))
    assert code == ErrorCode.INVALID_RECORD


def test_max_message_bytes() -> None:
    raw = some()
    code, message = refusal(raw, max_message_bytes=len(raw) - 1)
    assert code == ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes" in message
    assert str(len(raw)) in message
    check(raw, max_message_bytes=len(raw))


# -- time ------------------------------------------------------------------------------------------


def test_timestamps_too_far_ahead() -> None:
    raw = batches.batch([Rec(timestamp=NOW), Rec(timestamp=NOW + HOUR + 1)])
    code, message = refusal(raw, message_timestamp_after_max_ms=HOUR)
    assert code == ErrorCode.INVALID_TIMESTAMP
    assert "message.timestamp.after.max.ms" in message
    assert str(HOUR) in message
    check(batches.batch([Rec(timestamp=NOW + HOUR)]), message_timestamp_after_max_ms=HOUR)


def test_timestamps_too_far_back() -> None:
    raw = batches.batch([Rec(timestamp=NOW - HOUR - 1), Rec(timestamp=NOW)])
    check(raw)
    code, message = refusal(raw, message_timestamp_before_max_ms=HOUR)
    assert code == ErrorCode.INVALID_TIMESTAMP
    assert "message.timestamp.before.max.ms" in message
    check(batches.batch([Rec(timestamp=NOW - HOUR)]), message_timestamp_before_max_ms=HOUR)


def test_records_without_a_timestamp_are_let_in() -> None:
    raw = batches.batch([Rec(timestamp=-1)])
    check(raw, message_timestamp_before_max_ms=HOUR, message_timestamp_after_max_ms=HOUR)


def test_log_append_time_is_stamped_whatever_the_producer_says() -> None:
    for stamp in (0, NOW - 100 * HOUR, NOW + 100 * HOUR):
        raw = batches.batch([Rec(b"a", timestamp=stamp), Rec(b"b", timestamp=stamp + 5)])
        before = bytes(raw)
        batch = check(
            raw,
            message_timestamp_type="LogAppendTime",
            message_timestamp_before_max_ms=HOUR,
            message_timestamp_after_max_ms=HOUR,
        )
        assert check_batch(batch.data) == batch.header
        assert batch.header.log_append_time
        assert batch.header.max_timestamp == NOW
        assert [(r.timestamp, r.value) for r in read_records(batch.data)] == [
            (NOW, b"a"),
            (NOW, b"b"),
        ]
        assert raw == before, "the producer's own bytes were changed"


# -- compression.type ------------------------------------------------------------------------------

NAMES = {
    Compression.NONE: "uncompressed",
    Compression.GZIP: "gzip",
    Compression.SNAPPY: "snappy",
    Compression.LZ4: "lz4",
    Compression.ZSTD: "zstd",
}


@pytest.mark.parametrize("wanted", list(Compression), ids=lambda kind: kind.name)
@pytest.mark.parametrize("sent", list(Compression), ids=lambda kind: kind.name)
def test_recompression(sent: Compression, wanted: Compression) -> None:
    raw = some(20, kind=sent, producer_id=3, producer_epoch=1, base_sequence=7)
    batch = check(raw, compression_type=NAMES[wanted])
    assert batch.header.compression is wanted
    assert check_batch(batch.data) == batch.header
    assert read_records(batch.data) == read_records(raw)
    assert (batch.header.producer_id, batch.header.base_sequence) == (3, 7)
    assert (sent == wanted) == (bytes(batch.data) == raw)


def test_compression_levels_are_obeyed() -> None:
    raw = build_batch([Record(0, NOW, None, bytes(range(256)) * 200 + b"tail" * 500)])
    for name, field, low, high in (
        ("gzip", "compression_gzip_level", 1, 9),
        ("zstd", "compression_zstd_level", 1, 19),
        ("lz4", "compression_lz4_level", 1, 12),
    ):
        levels: list[dict[str, Any]] = [{field: low}, {field: high}]
        sizes = [check(raw, compression_type=name, **level).header.size for level in levels]
        assert sizes[1] <= sizes[0]


def test_recompression_and_log_append_time_together() -> None:
    batch = check(some(5), compression_type="zstd", message_timestamp_type="LogAppendTime")
    assert check_batch(batch.data) == batch.header
    assert batch.header.compression is Compression.ZSTD
    assert {r.timestamp for r in read_records(batch.data)} == {NOW}


def test_what_cannot_be_unpacked_is_refused() -> None:
    raw = batches.batch([b"x"], attributes=Compression.GZIP, payload=b"this is no gzip at all")
    check(raw, unpack=False)
    code, _ = refusal(raw, unpack=False, compression_type="zstd")
    assert code == ErrorCode.INVALID_RECORD


def test_a_batch_that_grows_beyond_the_limit_when_it_is_rewritten() -> None:
    """`max.message.bytes` holds for what is stored, as in Kafka."""
    raw = build_batch([Record(0, NOW, None, bytes(100_000))], compression=Compression.GZIP)
    assert len(raw) < 1000
    code, message = refusal(raw, compression_type="uncompressed", max_message_bytes=10_000)
    assert code == ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes" in message


def test_records_that_are_unpacked_anyway_are_checked() -> None:
    """The broker never writes a batch of its own that it would refuse from a client."""
    body = compress(Compression.GZIP, b"\x7f" * 40)
    raw = batches.batch([b"x", b"y"], attributes=Compression.GZIP, payload=body)
    code, _ = refusal(raw, compression_type="uncompressed")
    assert code == ErrorCode.INVALID_RECORD


# -- looking inside --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(Compression), ids=lambda kind: kind.name)
@pytest.mark.parametrize("policy", [{"compact"}, {"compact", "delete"}])
def test_a_compacted_topic_wants_keys(kind: Compression, policy: set[str]) -> None:
    good = [Record(0, NOW, b"k", b"v"), Record(1, NOW, b"", None)]
    check(build_batch(good, compression=kind), cleanup_policy=frozenset(policy))
    bad = build_batch([*good, Record(2, NOW, None, b"v")], compression=kind)
    code, message = refusal(bad, cleanup_policy=frozenset(policy))
    assert code == ErrorCode.INVALID_RECORD
    assert "key" in message
    check(bad, cleanup_policy=frozenset({"delete"}))


@pytest.mark.parametrize("kind", COMPRESSED, ids=lambda kind: kind.name)
def test_compressed_batches_are_looked_into(kind: Compression) -> None:
    check(some(kind=kind))
    for body in (b"\x7f" * 30, b"", b"\x0c\x00\x00\x00\x01\x01\x00" * 3):
        raw = batches.batch([b"x", b"y"], attributes=kind, payload=compress(kind, body))
        check(raw, unpack=False)
        code, _ = refusal(raw)
        assert code == ErrorCode.INVALID_RECORD


def test_full_validation_finds_wrong_offset_deltas() -> None:
    records = b"".join(batches.record(Rec(), delta, Rec().timestamp) for delta in (0, 0))
    raw = batches.batch([b"x", b"y"], payload=records)
    code, _ = refusal(raw, full=True)
    assert code == ErrorCode.INVALID_RECORD


def test_a_decompression_bomb_is_refused() -> None:
    bomb = compress(Compression.ZSTD, bytes(PRODUCED_BATCH_UNPACKED_BYTES_MAX + 1))
    raw = batches.batch([b"x"], attributes=Compression.ZSTD, payload=bomb)
    code, _ = refusal(raw, max_message_bytes=1 << 30)
    assert code == ErrorCode.MESSAGE_TOO_LARGE


def test_full_validation_finds_a_claimed_time_that_no_record_has() -> None:
    """Time index and retention go by the header's largest timestamp."""
    raw = batches.batch([Rec(timestamp=NOW)], max_timestamp=NOW + HOUR // 2)
    assert check(raw, full=True).header.max_timestamp == NOW


def test_views_of_a_frame_need_no_copy() -> None:
    raw = some()
    frame = memoryview(struct.pack(">i", 1) + raw + b"after")
    batch = checked(BatchRules(CONFIG, full=True), frame[4 : 4 + len(raw)], NOW)
    assert isinstance(batch.data, memoryview)
    assert batch.data.obj is frame.obj


# -- the two steps ---------------------------------------------------------------------------------


def rules(*, full: bool = False, unpack: bool = True, **config: Any) -> BatchRules:
    return BatchRules(replace(CONFIG, **config), full=full, unpack=unpack)


def unchecked(by: BatchRules, raw: bytes) -> UncheckedBatch:
    batch = by.accepted(memoryview(raw), NOW)
    assert isinstance(batch, UncheckedBatch)
    return batch


def test_what_must_be_looked_into() -> None:
    plain, packed = some(), some(kind=Compression.LZ4)
    future = build_batch([Record(0, NOW + 2 * HOUR, b"k", b"v")])
    cases: list[tuple[bytes, BatchRules, bool]] = [
        (plain, rules(), False),
        (packed, rules(), True),
        (packed, rules(unpack=False), False),
        (plain, rules(full=True), True),
        (plain, rules(cleanup_policy=frozenset({"compact"})), True),
        (plain, rules(message_timestamp_before_max_ms=HOUR), True),
        (plain, rules(compression_type="gzip"), True),
        (plain, rules(compression_type="uncompressed"), False),
        (packed, rules(unpack=False, compression_type="lz4"), False),
        (packed, rules(unpack=False, compression_type="zstd"), True),
        (plain, rules(message_timestamp_type="LogAppendTime"), False),
        (packed, rules(message_timestamp_type="LogAppendTime"), True),
        (future, rules(), True),
        (future, rules(message_timestamp_type="LogAppendTime"), False),
    ]
    for raw, by, expected in cases:
        found = by.accepted(memoryview(raw), NOW)
        assert isinstance(found, UncheckedBatch if expected else Batch)


def test_a_batch_waits_for_its_time_until_it_was_looked_into() -> None:
    by = rules(message_timestamp_type="LogAppendTime")
    first = unchecked(by, some(kind=Compression.GZIP))
    assert not first.header.log_append_time
    ready = by.unpacked(first, NOW + 7)
    assert ready.header.log_append_time
    assert ready.header.max_timestamp == NOW + 7
    assert ready.header == check_batch(ready.data)
    assert by.accepted(memoryview(some()), NOW).header.log_append_time


@pytest.mark.parametrize("kind", COMPRESSED, ids=lambda kind: kind.name)
def test_only_small_batches_are_looked_into_on_the_loop(kind: Compression) -> None:
    by = rules(max_message_bytes=1 << 30)

    def on_loop(*values: bytes) -> Batch | None:
        records = [Record(i, NOW, b"k", value) for i, value in enumerate(values)]
        return by.unpacked_on_loop(unchecked(by, build_batch(records, compression=kind)), NOW)

    noise = random.Random(3).randbytes(UNPACKED_ON_LOOP_BYTES_MAX)
    assert on_loop(b"v") is not None
    assert on_loop(*[b"v"] * RECORDS_ON_LOOP_MAX) is not None
    assert on_loop(noise[:-1000]) is not None
    assert on_loop(*[b"v"] * (RECORDS_ON_LOOP_MAX + 1)) is None
    assert on_loop(noise) is None
    assert on_loop(bytes(UNPACKED_ON_LOOP_BYTES_MAX)) is None, "small packed, large unpacked"
    assert on_loop(bytes(50_000_000)) is None


def test_packing_again_is_seldom_done_on_the_loop() -> None:
    by = rules(compression_type="gzip")
    small, large = some(2), some(REPACKED_ON_LOOP_BYTES_MAX // 50)
    packed = by.unpacked_on_loop(unchecked(by, small), NOW)
    assert packed is not None
    assert packed.header.compression is Compression.GZIP
    assert by.unpacked_on_loop(unchecked(by, large), NOW) is None
    assert by.unpacked(unchecked(by, large), NOW).header.compression is Compression.GZIP


def test_what_is_wrong_is_refused_on_the_loop_too() -> None:
    by = rules()
    raw = batches.batch([b"x"], attributes=Compression.ZSTD, payload=b"\xff" * 40)
    first = unchecked(by, raw)
    for step in (by.unpacked, by.unpacked_on_loop):
        with pytest.raises(ApiError) as caught:
            step(first, NOW)
        assert caught.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("kind", COMPRESSED, ids=lambda kind: kind.name)
def test_the_header_of_a_compressed_batch_is_not_believed(kind: Compression) -> None:
    """Its largest timestamp is what retention and searches by time go by."""
    late = [Rec(timestamp=NOW + 2 * HOUR), Rec(timestamp=NOW)]
    body = b"".join(batches.record(rec, i, NOW) for i, rec in enumerate(late))
    hidden = batches.batch(
        late, base_timestamp=NOW, max_timestamp=NOW, attributes=kind, payload=compress(kind, body)
    )
    with pytest.raises(RecordsRefused) as caught:
        check(hidden)
    assert caught.value.code == ErrorCode.INVALID_TIMESTAMP
    assert caught.value.indexes == [0]
    body = batches.record(Rec(timestamp=NOW), 0, NOW)
    for claimed in (0, NOW + 1, NOW + 2 * HOUR):
        raw = batches.batch(
            [Rec(timestamp=NOW)],
            max_timestamp=claimed,
            attributes=kind,
            payload=compress(kind, body),
        )
        mended = check(raw)
        assert mended.header.max_timestamp == NOW
        assert mended.header == check_batch(mended.data)


def test_keys_and_times_are_refused_together() -> None:
    """As Kafka does it: all places are named, and a wrong time has precedence."""
    items = [Rec(key=None), Rec(key=b"k", timestamp=NOW + 2 * HOUR), Rec(key=b"k")]
    raw = batches.batch(items)
    with pytest.raises(RecordsRefused) as caught:
        check(raw, cleanup_policy=frozenset({"compact"}))
    assert caught.value.code == ErrorCode.INVALID_TIMESTAMP
    assert caught.value.indexes == [0, 1]


def test_a_record_without_a_timestamp_is_never_too_old() -> None:
    raw = batches.batch([Rec(timestamp=-1), Rec(timestamp=NOW)], base_timestamp=-1)
    check(raw, message_timestamp_before_max_ms=HOUR)
    old = batches.batch([Rec(timestamp=5)])
    code, _ = refusal(old, message_timestamp_before_max_ms=HOUR)
    assert code == ErrorCode.INVALID_TIMESTAMP


def test_a_timestamp_that_no_field_can_hold() -> None:
    top = 2**63 - 1
    body = batches.record(Rec(timestamp=top + 1000), 0, top)
    raw = batches.batch([Rec()], base_timestamp=top, max_timestamp=top, payload=body)
    code, _ = refusal(raw, message_timestamp_after_max_ms=top, full=True)
    assert code == ErrorCode.INVALID_TIMESTAMP
    assert check(raw, message_timestamp_type="LogAppendTime", full=True).header.max_timestamp == NOW


def test_a_long_walk_lets_the_loop_run(monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    now = iter(range(1_000_000))
    monkeypatch.setattr(time, "perf_counter", lambda: next(now) * WALK_SECONDS_MAX / 4)
    sleep, walker = time.sleep, threading.get_ident()

    def nap(seconds: float) -> None:
        """Threads of others in this process sleep as ever."""
        if threading.get_ident() == walker:
            naps.append(seconds)
        else:
            sleep(seconds)

    monkeypatch.setattr(time, "sleep", nap)
    by = rules()
    by.unpacked(unchecked(by, some(50_000, kind=Compression.LZ4)), NOW)
    size = len(some(50_000))
    assert size // (WINDOW_BYTES * 8) <= len(naps) <= size // WINDOW_BYTES
