"""Record batches into Arrow, held against the codec of the wire, which reads record by record."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import CorruptRecord
from penstock.spark.records import (
    SCHEMA_WITH_HEADERS,
    Aborted,
    Chunk,
    Place,
    chunks_of,
    offset_after,
    to_arrow,
)
from penstock.wire.compression import Compression, compress
from penstock.wire.records import (
    HEADER_SIZE,
    EndTxnMarker,
    Record,
    assemble,
    build_batch,
    build_end_txn_marker,
    encode_record,
    parse_header,
    read_records,
)

maybe_bytes = st.none() | st.binary(max_size=200) | st.binary(min_size=9_000, max_size=9_100)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
records = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2**41), maybe_bytes, maybe_bytes, headers),
    min_size=1,
    max_size=20,
)


def batch_of(drawn: list[Any], base: int, **how: Any) -> bytes:
    """A batch whose offsets have the gaps that compaction leaves."""
    found, deltas, delta = [], [], 0
    for gap, stamp, key, value, pairs in drawn:
        found.append(Record(base + delta + gap, stamp, key, value, tuple(pairs)))
        deltas.append(delta + gap)
        delta += gap + 1
    plain = build_batch(found, base_offset=base, **how)
    body = bytearray()
    for record, at in zip(found, deltas, strict=True):
        encode_record(body, at, record.timestamp - found[0].timestamp, record)
    header = parse_header(plain)._replace(last_offset_delta=deltas[-1])
    return assemble(header, compress(header.compression, body))


def rows(data: bytes, place: Place, aborted: Aborted | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for chunk, _ in chunks_of(memoryview(data), place, aborted):
        if chunk.batches:
            batch = to_arrow(chunk, place, headers=True)
            batch.validate(full=True)
            assert batch.schema == SCHEMA_WITH_HEADERS
            found += batch.to_pylist()
    return found


def expected(batches: list[bytes], place: Place) -> list[dict[str, Any]]:
    found = []
    for batch in batches:
        header = parse_header(batch)
        for record in read_records(batch):
            if place.first <= record.offset < place.end:
                pairs = [{"key": key, "value": value} for key, value in record.headers]
                stamp = header.max_timestamp if header.log_append_time else record.timestamp
                found.append((record.offset, stamp, record.key, record.value, pairs or None))
    return found


@given(
    st.lists(
        st.tuples(records, st.sampled_from(list(Compression)), st.booleans()),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 60),
    st.integers(0, 90),
)
def test_the_same_records_as_one_by_one(drawn: list[Any], first: int, end: int) -> None:
    batches, base = [], 0
    for content, compression, append_time in drawn:
        batches.append(
            batch_of(content, base, compression=compression, log_append_time=append_time)
        )
        base = parse_header(batches[-1]).last_offset + 1
    place = Place("topic", 7, first, end)
    data = b"".join(batches)
    found = rows(data, place)
    assert [
        (
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            row["headers"],
        )
        for row in found
    ] == expected(batches, place)
    assert {(row["topic"], row["partition"]) for row in found} <= {("topic", 7)}
    assert offset_after(memoryview(data), 0) == base


def test_a_batch_that_was_cut_off_is_left_for_the_next_answer() -> None:
    whole = batch_of([(0, 1, b"k", b"v", [])], 0)
    cut = batch_of([(0, 1, b"k", b"w", [])], 1)
    place = Place("t", 0, 0, 9)
    for size in (0, 5, 12, HEADER_SIZE, len(cut) - 1):
        data = memoryview(whole + cut[:size])
        assert offset_after(data, 0) == 1
        assert [following for _, following in chunks_of(data, place, None)] == [1]


def test_aborted_records_are_hidden_and_markers_always() -> None:
    def transactional(producer: int, base: int, value: bytes) -> bytes:
        how = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
        return batch_of([(0, 1, None, value, [])], base, transactional=True, **how)

    def marker(producer: int, offset: int, commit: bool) -> bytes:
        return build_end_txn_marker(
            EndTxnMarker(commit, 0),
            base_offset=offset,
            timestamp=1,
            producer_id=producer,
            producer_epoch=0,
        )

    data = b"".join(
        [
            transactional(1, 0, b"aborted"),
            transactional(2, 1, b"committed"),
            batch_of([(0, 1, None, b"plain", [])], 2),
            marker(1, 3, False),
            transactional(1, 4, b"committed later"),
            marker(2, 5, True),
            marker(1, 6, True),
        ]
    )
    place = Place("t", 0, 0, 100)
    values = [row["value"] for row in rows(data, place, Aborted([(1, 0)]))]
    assert values == [b"committed", b"plain", b"committed later"]
    assert len(rows(data, place)) == 4


def test_a_marker_that_compaction_has_emptied() -> None:
    end = EndTxnMarker(False, 0)
    how = {"base_offset": 1, "timestamp": 1, "producer_id": 1, "producer_epoch": 0}
    header = parse_header(build_end_txn_marker(end, **how))
    emptied = assemble(header._replace(record_count=0), b"")
    data = batch_of([(0, 1, None, b"a", [])], 0) + emptied + batch_of([(0, 1, None, b"b", [])], 2)
    assert [row["value"] for row in rows(data, Place("t", 0, 0, 9))] == [b"a", b"b"]


def test_damaged_batches_are_refused() -> None:
    batch = bytearray(batch_of([(0, 1, b"key", b"value", [("h", b"1")])] * 3, 0))
    batch[-5] ^= 1
    with pytest.raises(CorruptRecord, match="CRC"):
        rows(bytes(batch), Place("t", 0, 0, 9))


def test_records_that_do_not_fill_their_batch_fuzz() -> None:
    """Behind a right CRC, whatever a broken producer wrote is read or refused, never anything
    else.
    """
    whole = batch_of([(0, 1, b"key", b"value", [("h", b"1")]), (1, 5, None, b"x" * 70, [])], 0)
    header, body = parse_header(whole), whole[HEADER_SIZE:]
    chance = random.Random(7)
    refused = 0
    for _ in range(3_000):
        damaged = bytearray(body)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        chunk = Chunk()
        chunk.add(header, bytes(damaged))
        try:
            batch = to_arrow(chunk, Place("t", 3, 0, 9), headers=True)
        except CorruptRecord as e:
            refused += str(e).startswith("topic t partition 3: a record between offsets 0 and ")
        else:
            assert batch.num_rows <= 2
            assert all(len(value or b"") <= len(body) for value in batch["value"].to_pylist())
    assert 500 < refused < 3_000
