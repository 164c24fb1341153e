"""The codec of encrypted batches: what comes out is what went in; a changed bit is found."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import CorruptRecord
from penstock.log.sealing import SEALED_EXTRA, SEALED_MAGIC, Seal, Unsealable
from penstock.wire.records import HEADER_SIZE, Compression, Record, build_batch, parse_header

SECRET = bytes(range(32))
SEAL = Seal(SECRET, b"a partition")
BATCH = st.builds(
    lambda values, offset, epoch, kind: build_batch(
        [Record(0, 1_000 + i, b"k", value) for i, value in enumerate(values)],
        base_offset=offset,
        partition_leader_epoch=epoch,
        compression=kind,
    ),
    st.lists(st.binary(max_size=200), min_size=1, max_size=5),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 20),
    st.sampled_from(Compression),
)


def staged(batch: bytes) -> list[bytes | memoryview]:
    return [batch[:16], memoryview(batch)[16:]]


@settings(deadline=None)
@given(st.lists(BATCH, min_size=1, max_size=4), st.integers(0, 100))
def test_what_was_encrypted_comes_out_as_it_went_in(batches: list[bytes], cut: int) -> None:
    stored = b"".join(SEAL.sealed([b for batch in batches for b in staged(batch)]))
    plain = b"".join(batches)
    assert len(stored) == len(plain) + SEALED_EXTRA * len(batches)
    assert SEAL.open_whole(stored)[0] == plain
    # A batch that is cut off is left out, as in a plain segment.
    whole, last = SEAL.open_whole(stored[: len(stored) - 1 - cut])
    assert plain.startswith(whole)
    assert len(whole) < len(plain)
    assert last == -1 or parse_header(whole, last).size == len(whole) - last


@given(BATCH)
def test_a_header_can_be_read_without_a_key_and_the_rest_cannot(batch: bytes) -> None:
    stored = SEAL.seal_batch(batch)
    plain, shown = parse_header(batch), parse_header(stored, 0, SEALED_MAGIC)
    hidden = {"length": 0, "magic": 0, "crc": 0}
    assert shown._replace(**hidden) == plain._replace(**hidden)
    assert shown.size == len(stored)
    with pytest.raises(CorruptRecord, match="magic"):
        parse_header(stored)
    assert SEAL.seal_batch(batch) != stored  # nor can two batches be compared
    assert b"a value that is secret" not in SEAL.seal_batch(
        build_batch([Record(0, 0, None, b"a value that is secret")])
    )


@settings(max_examples=30, deadline=None)
@given(BATCH, st.data())
def test_every_bit_that_is_changed_is_found(batch: bytes, data: st.DataObject) -> None:
    stored = bytearray(SEAL.seal_batch(batch))
    for at in (*range(HEADER_SIZE + 12), data.draw(st.integers(HEADER_SIZE, len(stored) - 1))):
        stored[at] ^= 1 << data.draw(st.integers(0, 7))
        with pytest.raises(CorruptRecord):
            SEAL.open_batch(bytes(stored))
        stored = bytearray(SEAL.seal_batch(batch))


@given(BATCH, BATCH)
def test_nobody_elses_batch_is_taken(one: bytes, other: bytes) -> None:
    stored = SEAL.seal_batch(one)
    for seal in (Seal(SECRET, b"another partition"), Seal(bytes(32), b"a partition")):
        with pytest.raises(CorruptRecord, match="damaged or changed"):
            seal.open_batch(stored)
    with pytest.raises(Unsealable) as damage:
        SEAL.open_whole(stored + other)  # a plain batch behind it
    assert damage.value.position == len(stored)


def test_a_key_is_not_shown() -> None:
    assert SECRET.hex() not in repr(SEAL)
    assert str(SECRET) not in repr(SEAL)
