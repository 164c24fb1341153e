"""What dead letters look like, and what their marker says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.share.dead_letter_records import (
    PREFIX,
    Made,
    Marker,
    Origin,
    divided,
    made,
    marked,
    offsets_of,
    room_for_ranges,
)
from penstock.share.types import Cause
from penstock.share.values import DeadLetter
from penstock.wire.records import HEADER_SIZE, Record, check_batch, read_records

ORIGIN = Origin("group:with:colons", "topic", 3)
TOPIC_ID, OTHER_ID = bytes(range(16)), bytes(16)
MANY = 1 << 20


def letters(*ranges: tuple[int, int]) -> list[DeadLetter]:
    return [DeadLetter(first, last, 2, Cause.REJECTED) for first, last in ranges]


def batch(
    given_up: list[DeadLetter],
    found: dict[int, Record],
    *,
    record_bytes_max: int = MANY,
    batch_bytes_max: int = MANY,
    marker_room: int = MANY,
) -> Made:
    return made(
        ORIGIN,
        given_up,
        found,
        now_ms=77,
        copy=True,
        record_bytes_max=record_bytes_max,
        batch_bytes_max=batch_bytes_max,
        marker_room=marker_room,
    )


def said(record: Record) -> dict[str, bytes | None]:
    return dict(record.headers)


def test_the_names_of_an_origin_can_be_read_back() -> None:
    assert ORIGIN.transactional_id.rsplit(":", 2) == ["__dlq.group:with:colons", "topic", "3"]
    assert ORIGIN.marker_group == "__dlq.group:with:colons"


@st.composite
def some_letters(draw: st.DrawFn) -> list[DeadLetter]:
    found, offset = [], draw(st.integers(0, 1_000_000))
    for gap, size in draw(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1)):
        found.append((offset + gap, offset + gap + size - 1))
        offset += gap + size
    return letters(*found)


@given(some_letters(), st.integers(HEADER_SIZE, 4_000), st.integers(100, 400), st.data())
def test_a_batch_keeps_its_limits_and_says_what_is_in_it(
    given_up: list[DeadLetter], bytes_max: int, text_max: int, data: st.DataObject
) -> None:
    wanted = [offset for offset, _ in offsets_of(given_up)]
    there = data.draw(st.sets(st.sampled_from(wanted)))
    records = {n: Record(n, 0, b"k", b"%d" % n, (("own", None),)) for n in there}
    room = room_for_ranges(TOPIC_ID, 5, text_max)
    found = batch(given_up, records, batch_bytes_max=bytes_max, marker_room=room)
    written = read_records(found.batch)
    offsets = [int(said(record)[PREFIX + "offset"] or b"") for record in written]
    assert offsets == wanted[: len(offsets)], "the first of them, in their order"
    assert [n for first, last in found.ranges for n in range(first, last + 1)] == offsets
    assert len(offsets) == 1 or len(found.batch) <= bytes_max
    assert [record.value for record in written] == [
        b"%d" % n if n in there else None for n in offsets
    ]
    assert all(
        (PREFIX + "omitted" in said(r)) == (n not in there)
        for n, r in zip(offsets, written, strict=True)
    )
    text = Marker(TOPIC_ID, 5, found.ranges).text
    assert len(offsets) == 1 or len(text) <= text_max
    assert marked(text, TOPIC_ID, 5) == found.ranges
    assert marked(text, TOPIC_ID, 6) == marked(text, OTHER_ID, 5) == []
    inside, outside = divided(given_up, found.ranges)
    assert [n for first, last in inside for n in range(first, last + 1)] == offsets
    assert [n for first, last in outside for n in range(first, last + 1)] == wanted[len(offsets) :]


def test_a_cleared_marker_names_nothing() -> None:
    assert marked("", TOPIC_ID, 0) == []
    assert marked(Marker(TOPIC_ID, 0, []).text, TOPIC_ID, 0) == []


def test_what_is_too_large_is_left_out_in_turn() -> None:
    big = bytes(1_000)
    for limit, source, omitted in [
        (1_200, Record(0, 0, b"k", big, (("own", b"h"),)), b"value"),
        (1_200, Record(0, 0, big, big, (("own", b"h"),)), b"key,value"),
        (1_200, Record(0, 0, big, big, (("own", big),)), b"key,value,headers"),
    ]:
        found = batch(letters((0, 0)), {0: source}, record_bytes_max=limit)
        [letter] = read_records(found.batch)
        assert check_batch(found.batch).size <= limit
        assert said(letter)[PREFIX + "omitted"] == omitted
        assert ("own" in said(letter)) == (b"headers" not in omitted)
        assert letter.timestamp == 77
        assert found.shortened == 1
