"""The walk over a batch's records: what it takes, every other reader reads; what it costs."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from penstock.base.errors import CorruptRecord
from penstock.wire.compression import Compression, UnpacksTooLarge
from penstock.wire.record_walk import (
    NOTED_RECORDS_MAX,
    WINDOW_BYTES,
    Walked,
    Wanted,
    check_records,
    walk_records,
)
from penstock.wire.records import HEADER_SIZE, Record, build_batch, parse_header, read_records
from support.batches import Rec, batch, record, varint
from support.spoiled import CODECS, HEAD, INSIDES, PACK, T0, one, packed, raw_packed, records

RIGHT = {"right", "right, headers", "record attributes"}
COMPRESSED = [kind for kind in Compression if kind is not Compression.NONE]


def check(raw: bytes, wanted: Wanted | None = None, **limits: int) -> Walked:
    return check_records(raw, parse_header(raw), wanted or Wanted(), **limits)


def walk(body: bytes, count: int) -> Walked:
    return walk_records(body, count, Wanted())


@pytest.mark.parametrize("codec", [0, *CODECS.values()])
@pytest.mark.parametrize("case", INSIDES)
def test_what_consumers_cannot_read_is_refused(case: str, codec: int) -> None:
    inside, count = INSIDES[case]
    raw = packed(inside, codec, count)
    if case in RIGHT:
        check(raw)
    else:
        with pytest.raises(CorruptRecord):
            check(raw)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_streams_that_are_no_streams_are_refused(codec: int) -> None:
    stream = PACK[codec](records(150))
    other = PACK[CODECS["lz4"] if codec == CODECS["zstd"] else CODECS["zstd"]](records(150))
    check(raw_packed(stream, codec, 150))
    for payload in (b"", b"\xff" * 40, stream[:-1], stream[:-10], stream + b"rubbish", other):
        with pytest.raises(CorruptRecord):
            check(raw_packed(payload, codec, 150))


def test_lz4_that_java_does_not_read_is_refused() -> None:
    lz4 = CODECS["lz4"]
    inside = records(2)
    two_frames = PACK[lz4](inside[:20]) + PACK[lz4](inside[20:])
    frame = bytearray(PACK[lz4](inside))
    frame[4] &= ~0x20  # blocks that depend on each other
    for payload in (two_frames, bytes(frame)):
        with pytest.raises(CorruptRecord, match="LZ4 frame"):
            check(raw_packed(payload, lz4, 2))


texts = st.one_of(st.none(), st.binary(max_size=200), st.just(bytes(WINDOW_BYTES + 1)))
fields = st.tuples(
    st.integers(-(2**40), 2**40),
    texts,
    texts,
    st.lists(st.tuples(st.text(max_size=5), texts), max_size=3).map(tuple),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(fields, min_size=1, max_size=100), st.sampled_from(list(Compression)))
def test_whatever_is_built_is_taken(
    made: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    kind: Compression,
) -> None:
    items = [Record(0, T0 + time, key, value, headers) for time, key, value, headers in made]
    found = check(build_batch(items, compression=kind), Wanted(keys=True))
    assert found.latest == max(item.timestamp for item in items) - items[0].timestamp
    assert found.keyless == [place for place, item in enumerate(items) if item.key is None]
    assert found.untimely == []


mutations = st.lists(
    st.tuples(st.sampled_from("scid"), st.integers(0, 10_000), st.binary(min_size=1, max_size=4)),
    min_size=1,
    max_size=4,
)


def mutated(data: bytes, steps: list[tuple[str, int, bytes]]) -> bytes:
    out = bytearray(data)
    for kind, place, new in steps:
        at = place % (len(out) + 1)
        if kind == "s":
            out[at : at + len(new)] = new
        elif kind == "i":
            out[at:at] = new
        elif kind == "d":
            del out[at : at + len(new)]
        else:
            out = out[: max(at, 1)]
    return bytes(out)


def read_by_others(raw: bytes, count: int) -> None:
    """Read every record as kafka-python does; its codecs are not ours."""
    found = [(item.offset, item.key, item.value) for item in KafkaPythonBatch(raw)]
    assert [offset for offset, *_ in found] == list(range(count))
    ours = read_records(raw)
    assert found == [(item.offset, item.key, item.value) for item in ours]


ITEMS = b"".join(record(Rec(b"value %d" % i, b"k", T0 + i), i, T0) for i in range(70))


@settings(max_examples=400, deadline=None)
@given(mutations, st.sampled_from([0, *CODECS.values()]))
def test_a_change_inside_is_refused_or_readable(
    steps: list[tuple[str, int, bytes]], codec: int
) -> None:
    raw = packed(mutated(ITEMS, steps), codec, 70)
    try:
        check(raw)
    except CorruptRecord:
        return
    read_by_others(raw, 70)


@settings(max_examples=400, deadline=None)
@given(mutations, st.sampled_from(list(CODECS.values())))
def test_a_change_of_the_stream_is_refused_or_readable(
    steps: list[tuple[str, int, bytes]], codec: int
) -> None:
    raw = raw_packed(mutated(PACK[codec](ITEMS), steps), codec, 70)
    try:
        check(raw)
    except CorruptRecord:
        return
    read_by_others(raw, 70)


@settings(max_examples=300, deadline=None)
@given(mutations)
def test_the_walk_and_the_reader_agree(steps: list[tuple[str, int, bytes]]) -> None:
    raw = packed(mutated(ITEMS, steps), 0, 70)
    try:
        found = read_records(raw)
        readable = [item.offset for item in found] == list(range(70))
    except CorruptRecord:
        readable = False
    refusal, latest = "", 0
    try:
        latest = check(raw).latest
    except CorruptRecord as e:
        refusal = str(e)
    if refusal:
        # Two rules are the walk's alone: they keep other clients from misreading a record.
        assert not readable or "attributes" in refusal or "bits" in refusal
    else:
        assert readable
        assert T0 + latest == max(item.timestamp for item in found)


def test_records_and_headers_larger_than_a_window() -> None:
    big = bytes(WINDOW_BYTES)
    many = tuple((b"h", b"v") for _ in range(WINDOW_BYTES))
    wide = ((b"small", None), (b"large", big * 2), (big, b"x"), (b"small", b""))
    items = [Rec(b"v"), Rec(big * 3, big), Rec(None, None, headers=many), Rec(b"v", headers=wide)]
    body = b"".join(record(item, i, T0) for i, item in enumerate(items))
    walk(body, 4)
    for at in (5, len(body) // 2, len(body) - 8):
        with pytest.raises(CorruptRecord):
            walk(body[:at] + b"\xff" * 7 + body[at + 7 :], 4)
    for count in (3, 5):
        with pytest.raises(CorruptRecord):
            walk(body, count)
    with pytest.raises(CorruptRecord):
        walk(body[:-1], 4)


@pytest.mark.parametrize("size", range(WINDOW_BYTES - 12, WINDOW_BYTES + 12))
def test_records_around_the_end_of_a_window(size: int) -> None:
    first = record(Rec(bytes(size - 12)), 0, T0)
    assert abs(len(first) - size) < 12
    rest = b"".join(record(Rec(b"v", headers=((b"h", b"x" * 200),)), i, T0) for i in (1, 2))
    walk(first + rest, 3)
    with pytest.raises(CorruptRecord):
        walk(first + rest, 2)


def test_headers_around_the_end_of_a_window() -> None:
    """A varint of a header may be cut by the window's end."""
    for size in range(WINDOW_BYTES - 12, WINDOW_BYTES + 12):
        headers = ((b"h", bytes(size)), (b"n" * 70, b"v" * 70), (b"m" * 9000, None))
        walk(record(Rec(b"v", headers=headers), 0, T0), 1)


def test_numbers_of_more_bits_than_their_type() -> None:
    rest = varint(-1) + varint(-1) + varint(0)
    wide = b"\x80\x80\x80\x80\x10"  # bit 32: Java would read 0
    long = b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"
    for fields in (HEAD[:2] + wide + rest, b"\0" + long + varint(0) + rest):
        with pytest.raises(CorruptRecord, match="bits"):
            walk(one(fields), 1)
    walk(one(b"\0" + varint(2**61) + varint(0) + rest), 1)


def test_times_and_keys_are_noted_up_to_a_number() -> None:
    count = NOTED_RECORDS_MAX + 10
    body = b"".join(record(Rec(timestamp=T0 + i), i, T0) for i in range(count))
    found = walk_records(body, count, Wanted(keys=True, earliest=0, latest=4))
    assert found.keyless == list(range(NOTED_RECORDS_MAX))
    assert found.untimely == list(range(5, 5 + NOTED_RECORDS_MAX))
    assert found.latest == count - 1
    body = b"".join(record(Rec(timestamp=T0 + i), i, T0) for i in (0, 1, 2))
    assert walk_records(body, 3, Wanted(latest=0, exempt=2)).untimely == [1]
    large = record(Rec(bytes(WINDOW_BYTES), timestamp=T0 + 9), 0, T0)
    found = walk_records(large, 1, Wanted(keys=True, latest=8))
    assert (found.keyless, found.untimely, found.latest) == ([0], [0], 9)


def test_a_walk_stands_back_now_and_then() -> None:
    paused: list[None] = []
    body = b"".join(record(Rec(bytes(1000)), i, T0) for i in range(2000))
    walk_records(body, 2000, Wanted(), lambda: paused.append(None))
    assert len(body) // WINDOW_BYTES <= len(paused) <= 1.1 * len(body) / WINDOW_BYTES
    paused.clear()
    headers = record(Rec(headers=((b"h", None),) * WINDOW_BYTES), 0, T0)
    walk_records(headers, 1, Wanted(), lambda: paused.append(None))
    assert len(paused) >= len(headers) // WINDOW_BYTES


@pytest.mark.parametrize("kind", COMPRESSED, ids=lambda kind: kind.name)
def test_a_bomb_costs_no_more_than_the_limit(kind: Compression) -> None:
    size = 64 << 20
    body = one(HEAD + varint(-1) + varint(size) + bytes(size) + varint(0))
    raw = packed(body, int(kind), 1)
    with pytest.raises(UnpacksTooLarge):
        check(raw, max_bytes=size)
    check(raw, max_bytes=len(body))
    script = """
import resource, sys
from penstock.wire.compression import UnpacksTooLarge
from penstock.wire.record_walk import Wanted, check_records
from penstock.wire.records import parse_header
raw = sys.stdin.buffer.read()
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
try:
    check_records(raw, parse_header(raw), Wanted(), max_bytes=8 << 20)
except UnpacksTooLarge:
    print(peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], input=raw, capture_output=True, check=True
    )
    assert int(done.stdout) < 14 * 1024, "KiB of memory beyond the 8 MiB allowed"


def test_threads_do_not_disturb_each_other() -> None:
    good = [
        (packed(records(count), codec, count), count)
        for codec in CODECS.values()
        for count in (1, 500, 3000)
    ]
    bad = [packed(records(500) + b"\0", codec, 500) for codec in CODECS.values()]

    def judge(raw: bytes) -> str:
        try:
            return f"{parse_header(raw).record_count} records, {check(raw).latest}"
        except CorruptRecord as e:
            return str(e)

    batches = ([raw for raw, _ in good] + bad) * 6
    alone = [judge(raw) for raw in batches]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(judge, batches)) == alone


def test_an_uncompressed_batch_is_walked_without_a_limit() -> None:
    raw = batch([b"x" * 1000])
    assert check(raw, max_bytes=10).latest == 0
    assert len(raw) > HEADER_SIZE + 10
