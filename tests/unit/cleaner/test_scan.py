"""The quick walk over records sees what the thorough one sees."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import CorruptRecord
from penstock.log.cleaner_scan import scan_batch
from penstock.wire.records import (
    HEADER_SIZE,
    Compression,
    Record,
    assemble,
    build_batch,
    check_batch,
    parse_header,
    read_records,
)

SIZES = st.sampled_from([0, 1, 15, 16, 63, 64, 70, 9_000])
BYTES = st.none() | SIZES.flatmap(lambda n: st.binary(min_size=n, max_size=n))
RECORDS = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(0, 2**60) | st.integers(0, 200),
        BYTES,
        BYTES,
        st.sampled_from([(), (("name", b"value"),)]),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(RECORDS, st.sampled_from(Compression))
def test_it_agrees_with_read_records(records: list[Record], kind: Compression) -> None:
    batch = build_batch(records, base_offset=7, compression=kind)
    agree(batch)


def test_offset_deltas_of_every_width() -> None:
    records = [Record(0, i, b"k%d" % i, b"") for i in range(20_000)]
    agree(build_batch(records))


def agree(batch: bytes) -> None:
    header = check_batch(batch)
    body, scan = scan_batch(header, batch)
    expected = read_records(batch)
    assert [header.base_offset + d for d in scan.offset_deltas] == [r.offset for r in expected]
    assert [
        header.base_timestamp + ((raw >> 1) ^ -(raw & 1)) for raw in scan.timestamps_zigzag
    ] == [r.timestamp for r in expected]
    assert scan.tombstones == [i for i, r in enumerate(expected) if r.value is None]
    assert scan.keyless == [i for i, r in enumerate(expected) if r.key is None]
    for seen, record in zip(scan.keys, (r.key for r in expected), strict=True):
        if record is None or len(record) < 16:
            assert seen == record
        else:
            assert seen is not None
            assert len(seen) == 16
    assert (scan.bounds[0], scan.bounds[-1]) == (0, len(body))
    if len(expected) == 1:
        return
    # Any one record, cut out by its bounds, is a batch of its own.
    alone = body[scan.bounds[1] : scan.bounds[2]]
    single = assemble(header._replace(record_count=1, attributes=0), alone)
    assert read_records(single) == [expected[1]]


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
def test_damage_is_corruption_and_nothing_else(changes: list[tuple[int, int]]) -> None:
    batch = build_batch([Record(0, 300 * i, b"key", b"value", (("h", b"x"),)) for i in range(4)])
    body = bytearray(batch[HEADER_SIZE:])
    for at, value in changes:
        body[at % len(body)] = value
    damaged = assemble(parse_header(batch), body)
    try:
        read_records(damaged)
    except CorruptRecord:
        # The walk does not look into headers, so it may be content where the thorough one is not.
        with suppress(CorruptRecord):
            scan_batch(parse_header(damaged), damaged)
    else:
        agree(damaged)
