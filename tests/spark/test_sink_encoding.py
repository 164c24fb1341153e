"""Rows into record batches and onto partitions, held against the broker's own reader and other
clients' partitioners.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from penstock.spark import encoding, producer
from penstock.spark.encoding import (
    Rows,
    Stamp,
    cut,
    encode,
    encode_headers,
    milliseconds,
    payload_bytes,
)
from penstock.spark.errors import SparkError
from penstock.spark.partitioning import choose, murmur2
from penstock.spark.producer import Batch, in_rounds
from penstock.wire.compression import Compression
from penstock.wire.records import check_batch, read_records

STAMP = Stamp(producer_id=7, producer_epoch=3, sequence=11, transactional=True)

blobs = st.none() | st.binary(max_size=20) | st.integers(60, 9000).map(bytes)
headers = st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)))
rows = st.lists(st.tuples(blobs, blobs, headers), min_size=1, max_size=150)


times = st.none() | st.integers(0, 2**53)
Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]


def columns(given_rows: list[Row]) -> Rows:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    named = [h and [{"key": k, "value": v} for k, v in h] for _, _, h in given_rows]
    return Rows(
        pa.array([key for key, _, _ in given_rows], pa.binary()),
        pa.array([value for _, value, _ in given_rows], pa.binary()),
        encode_headers(pa.array(named, kind)),
    )


@given(rows, st.sampled_from(Compression))
def test_a_batch_reads_back_as_it_was_written(
    given_rows: list[Row], compression: Compression
) -> None:
    batch = encode(columns(given_rows), STAMP, 1234, compression)
    header = check_batch(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == STAMP[:3]
    assert header.is_transactional
    found = read_records(batch)
    assert [r.offset for r in found] == list(range(len(given_rows)))
    assert {r.timestamp for r in found} == {1234}
    assert [(r.key, r.value, list(r.headers)) for r in found] == [
        (key, value, h or []) for key, value, h in given_rows
    ]


@given(st.lists(times, min_size=1, max_size=150))
def test_rows_keep_their_times_and_get_one_where_they_have_none(given_ms: list[int | None]) -> None:
    values = pa.array([b"v"] * len(given_ms), pa.binary())
    column = pa.array(given_ms, pa.int64())
    batch = encode(Rows(None, values, None, column), STAMP, 1234, Compression.NONE)
    wanted = [1234 if ms is None else ms for ms in given_ms]
    assert [r.timestamp for r in read_records(batch)] == wanted
    assert check_batch(batch).max_timestamp == max(wanted)


def test_times_as_kafka_has_them() -> None:
    kind = pa.timestamp("us", "UTC")
    micros = pa.array([1_700_000_000_123_999, None, -1000], kind)
    assert milliseconds(micros).to_pylist() == [1_700_000_000_123, None, -1]
    with pytest.raises(SparkError, match="a row has the timestamp -5 ms, before 1970"):
        milliseconds(pa.array([0, -5000], kind))


@given(rows, st.data())
def test_a_slice_is_written_as_what_it_shows(given_rows: list[Row], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(given_rows) - 1))
    stop = data.draw(st.integers(start + 1, len(given_rows)))
    found = read_records(encode(columns(given_rows).slice(start, stop), STAMP, 0, Compression.NONE))
    assert [(r.key, r.value) for r in found] == [row[:2] for row in given_rows[start:stop]]


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=60))
def test_pieces_are_small_and_keep_the_order(sizes: list[int]) -> None:
    whole = Rows(None, pa.array([bytes(size) for size in sizes], pa.binary()), None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "BATCH_BYTES_MAX", 4096)
        pieces = cut(whole)
        assert all(len(p) == 1 or p.sizes().sum() <= 4096 for p in pieces)
    assert [len(v) for p in pieces for v in p.value.to_pylist()] == sizes
    assert sum(payload_bytes(p) for p in pieces) == sum(sizes)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=40))
def test_keys_are_hashed_as_other_clients_do(keys: list[bytes]) -> None:
    column = pa.array([b"before", *keys], pa.binary()).slice(1)
    assert murmur2(column).tolist() == [murmur2_of_kafka_python(key) for key in keys]


def test_a_partition_is_asked_for_or_hashed_or_taken_in_turn() -> None:
    keys = pa.array([b"a", b"a", None, b"a"], pa.binary())
    asked = pa.array([None, 2, None, 0], pa.int32())
    by_hash = (murmur2_of_kafka_python(b"a") & 0x7FFFFFFF) % 3
    assert choose("t", 3, 4, asked, keys, 7).tolist() == [by_hash, 2, 7 % 3, 0]
    assert choose("t", 3, 2, None, None, 5).tolist() == [2, 2]


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_partition_that_is_not_there_is_named(wrong: int) -> None:
    with pytest.raises(SparkError, match=f"asks for partition {wrong} of topic 't', which has 3"):
        choose("t", 3, 2, pa.array([0, wrong], pa.int32()), None, 0)


@pytest.mark.parametrize("wrong", [None, {"key": None, "value": b"v"}])
def test_a_header_without_a_key_is_refused(wrong: dict[str, bytes | None] | None) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    with pytest.raises(SparkError, match="a row has a header without a key"):
        encode_headers(pa.array([[{"key": "k", "value": b"v"}, wrong]], kind))


def test_offsets_of_many_rows_take_more_than_two_bytes() -> None:
    count = 20_000
    values = pa.array(np.full(count, b"v"), pa.binary())
    found = read_records(encode(Rows(None, values, None), STAMP, 0, Compression.NONE))
    assert [r.offset for r in found] == list(range(count))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3000)), max_size=60))
def test_requests_are_small_and_keep_the_order_of_each_partition(
    sizes: list[tuple[int, int]],
) -> None:
    batches = [
        Batch("t", partition, Rows(None, pa.array([bytes(size)], pa.binary()), None), number)
        for number, (partition, size) in enumerate(sizes)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer, "REQUEST_BYTES_MAX", 4096)
        rounds = in_rounds(batches)
    for together in rounds:
        places = [batch.partition for batch in together]
        assert len(set(places)) == len(places)
        assert len(together) == 1 or sum(int(b.rows.sizes().sum()) for b in together) <= 4096
    sent = [batch for together in rounds for batch in together]
    assert sorted(b.sequence for b in sent) == list(range(len(sizes)))
    for partition in range(4):
        numbers = [b.sequence for b in sent if b.partition == partition]
        assert numbers == sorted(numbers)
