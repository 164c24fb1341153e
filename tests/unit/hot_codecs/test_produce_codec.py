"""The hand-tuned codec of Produce says what the generated one says, in every version."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.limits import ARRAY_ELEMENTS_MAX, TAGGED_FIELDS_MAX
from penstock.wire.errors import WireError
from penstock.wire.messages.header import ResponseHeader
from penstock.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock.wire.produce_codec import (
    LeaderEndpoint,
    PartitionAnswer,
    decode_produce_request,
    encode_produce_response,
)
from penstock.wire.varint import unsigned_varint
from unit.wire.random_messages import random_struct

VERSIONS = ProduceRequest.VERSIONS
FLEXIBLE = ProduceRequest.FLEXIBLE_FROM
BY_ID_FROM = 13

versions = st.sampled_from(VERSIONS)
int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
endpoints = st.builds(
    LeaderEndpoint, int32s, st.text(max_size=9), int32s, st.none() | st.text(max_size=9)
)
names = st.text(max_size=40)
ids = st.binary(min_size=16, max_size=16)


def plain(request: ProduceRequest, version: int) -> tuple[Any, ...]:
    """A request as the nested tuples that the hand-tuned decoder makes, records as bytes."""
    return (
        request.transactional_id,
        request.acks,
        request.timeout_ms,
        [
            (
                topic.topic_id if version >= BY_ID_FROM else topic.name,
                [(p.index, owned(p.records)) for p in topic.partition_data],
            )
            for topic in request.topic_data
        ],
    )


def owned(records: bytes | memoryview | None) -> bytes | None:
    return None if records is None else bytes(records)


def by_hand(raw: bytes, version: int, position: int = 0) -> tuple[Any, ...]:
    body = decode_produce_request(memoryview(raw), position, version)
    topics = [(topic, [(i, owned(r)) for i, r in partitions]) for topic, partitions in body.topics]
    return body.transactional_id, body.acks, body.timeout_ms, topics


def test_the_versions_are_those_of_the_table() -> None:
    assert list(VERSIONS) == list(range(3, 14))
    assert FLEXIBLE == 9


@given(st.data(), versions)
@settings(max_examples=100, deadline=None)
def test_a_request_reads_as_the_table_says(data: st.DataObject, version: int) -> None:
    partition = st.builds(
        PartitionProduceData, index=int32s, records=st.none() | st.binary(max_size=200)
    )
    key = {"topic_id": ids} if version >= BY_ID_FROM else {"name": names}
    topic = st.builds(TopicProduceData, partition_data=st.lists(partition, max_size=4), **key)
    request = data.draw(
        st.builds(
            ProduceRequest,
            transactional_id=st.none() | names,
            acks=int16s,
            timeout_ms=int32s,
            topic_data=st.lists(topic, max_size=4),
        )
    )
    raw = request.encode(version)
    assert by_hand(raw, version) == plain(request, version)
    # A body stands behind a header, and what follows it is let pass.
    assert by_hand(b"header" + raw + b"more", version, len(b"header")) == plain(request, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_random_requests_and_each_of_their_truncations(version: int) -> None:
    rng = Random(version)
    for _ in range(30):
        request = random_struct(ProduceRequest, version, rng)
        raw = request.encode(version)
        assert by_hand(raw, version) == plain(request, version)
        for cut in {*range(0, len(raw), 7), len(raw) - 1}:
            with pytest.raises(WireError):
                by_hand(raw[:cut], version)


def tags(fields: list[tuple[int, bytes]]) -> bytes:
    out = unsigned_varint(len(fields))
    for tag, value in fields:
        out += unsigned_varint(tag) + unsigned_varint(len(value)) + value
    return out


unknown_tags = st.lists(
    st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=20)),
    max_size=3,
    unique_by=lambda field: field[0],
).map(tags)


@given(st.sampled_from(range(9, 14)), unknown_tags, unknown_tags, unknown_tags, ids)
@settings(max_examples=100, deadline=None)
def test_unknown_tagged_fields_are_skipped(
    version: int, of_partition: bytes, of_topic: bytes, of_request: bytes, topic_id: bytes
) -> None:
    raw = b"\x00" + struct.pack(">hi", -1, 1000) + b"\x03"
    for _ in range(2):
        raw += topic_id if version >= BY_ID_FROM else b"\x03t1"
        raw += b"\x03"
        raw += struct.pack(">i", 7) + b"\x04abc" + of_partition
        raw += struct.pack(">i", 8) + b"\x00" + of_partition + of_topic
    raw += of_request
    partitions = [(7, b"abc"), (8, None)]
    topic = topic_id if version >= BY_ID_FROM else "t1"
    expected = (None, -1, 1000, [(topic, partitions)] * 2)
    assert by_hand(raw, version) == expected
    assert plain(ProduceRequest.decode(raw, version), version) == expected


def test_records_are_views_of_the_frame_not_copies() -> None:
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"x" * 100)])
    frame = memoryview(ProduceRequest(topic_data=[topic]).encode(3))
    [(_, [(_, records)])] = decode_produce_request(frame, 0, 3).topics
    assert records is not None
    assert records.obj is frame.obj


@pytest.mark.parametrize(
    ("version", "raw", "says"),
    [
        (3, b"\xff\xff" + struct.pack(">hii", 1, 0, -1), "-1 elements"),
        (3, b"\xff\xff" + struct.pack(">hii", 1, 0, 2**31 - 1), "elements"),
        (3, b"\xff\xff" + struct.pack(">hii", 1, 0, 1) + b"\xff\xff\0\0\0\0", "without a name"),
        (3, b"\x00\x02\xff\xfe" + struct.pack(">hii", 1, 0, 0), "utf-8"),
        (9, b"\x00" + struct.pack(">hi", 1, 0) + b"\x00\x00", "-1 elements"),
        (9, b"\x00" + struct.pack(">hi", 1, 0) + b"\x02\x00\x01\x00\x00", "without a name"),
        (9, b"\x00" + struct.pack(">hi", 1, 0) + b"\x01\x01\x00\x7f", "127"),
        (9, b"\xff\xff\xff\xff\xff\x01", "varint"),
        (13, b"\x00" + struct.pack(">hi", 1, 0) + b"\x02" + b"i" * 15, "out of bounds"),
    ],
)
def test_what_is_wrong_is_said(version: int, raw: bytes, says: str) -> None:
    with pytest.raises(WireError, match=f"ProduceRequest v{version}") as caught:
        by_hand(raw, version)
    assert says in str(caught.value)


def _partitions(version: int, count: int) -> bytes:
    if version >= 9:
        topic = b"i" * 16 if version >= BY_ID_FROM else b"\x02t"
        return topic + unsigned_varint(count + 1) + b"\0\0\0\0\0\0" * count + b"\0"
    return b"\x00\x01t" + struct.pack(">i", count) + b"\0\0\0\0\xff\xff\xff\xff" * count


@pytest.mark.parametrize("version", [8, 9, 13])
def test_a_request_has_no_more_elements_than_a_message_may_have(version: int) -> None:
    """The limit holds for the whole message, else a few large arrays get round it."""
    topics = 2 * _partitions(version, ARRAY_ELEMENTS_MAX // 2 + 1)
    if version >= 9:
        raw = b"\x00" + struct.pack(">hi", 1, 0) + b"\x03" + topics + b"\0"
    else:
        raw = b"\xff\xff" + struct.pack(">hii", 1, 0, 2) + topics
    with pytest.raises(WireError):
        ProduceRequest.decode(raw, version)
    with pytest.raises(WireError):
        decode_produce_request(memoryview(raw), 0, version)


def test_a_structure_has_no_more_tagged_fields_than_it_may_have() -> None:
    """Skipping is work too: a frame full of tags would hold the event loop for seconds."""
    many = tags([(1, b"")] * (TAGGED_FIELDS_MAX + 1))
    raw = b"\x00" + struct.pack(">hi", 1, 0) + b"\x01" + many
    with pytest.raises(WireError):
        ProduceRequest.decode(raw, 9)
    with pytest.raises(WireError):
        decode_produce_request(memoryview(raw), 0, 9)


# -- answers ---------------------------------------------------------------------------------------

leaders = st.just((-1, -1)) | st.tuples(st.integers(0, 2**31 - 1), int32s)


# A message and the hint to a leader come with errors only.
appended = st.tuples(int32s, st.just(0), int64s, int64s, int64s)
refused = st.tuples(
    int32s, int16s.filter(bool), int64s, int64s, int64s, st.none() | st.text(max_size=200)
)
answers = appended.map(lambda fields: PartitionAnswer(*fields)) | st.builds(
    lambda fields, leader, places: PartitionAnswer(*fields, *leader, places),
    refused,
    leaders,
    st.lists(st.integers(0, 2**31 - 1), max_size=3),
)


def table_answer(p: PartitionAnswer, version: int) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=p.partition,
        error_code=p.error_code,
        base_offset=p.base_offset,
        log_append_time_ms=p.log_append_time_ms,
        log_start_offset=p.log_start_offset,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=i, batch_index_error_message=p.error_message)
            for i in p.record_errors
        ],
        error_message=p.error_message,
        current_leader=LeaderIdAndEpoch(leader_id=p.leader_id, leader_epoch=p.leader_epoch)
        if version >= 10
        else LeaderIdAndEpoch(),
    )


@given(st.data(), versions, int32s, int32s)
@settings(max_examples=100, deadline=None)
def test_an_answer_has_the_bytes_of_the_table(
    data: st.DataObject, version: int, correlation_id: int, throttle_ms: int
) -> None:
    keys: st.SearchStrategy[Any] = ids if version >= BY_ID_FROM else names
    topics = data.draw(st.lists(st.tuples(keys, st.lists(answers, max_size=4)), max_size=3))
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                **{"topic_id" if version >= BY_ID_FROM else "name": topic},
                partition_responses=[table_answer(p, version) for p in partitions],
            )
            for topic, partitions in topics
        ],
        throttle_time_ms=throttle_ms,
    )
    named = data.draw(st.lists(endpoints, max_size=3))
    if version >= 10 and any(p.error_code for _, partitions in topics for p in partitions):
        response.node_endpoints = [
            NodeEndpoint(node_id=e.id, host=e.host, port=e.port, rack=e.rack) for e in named
        ]
    header = ResponseHeader(correlation_id=correlation_id).encode(1 if version >= 9 else 0)
    body = header + response.encode(version)
    frame = encode_produce_response(correlation_id, version, topics, named, throttle_ms)
    assert frame == struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("version", VERSIONS)
def test_many_partitions_and_long_messages(version: int) -> None:
    answers = [
        PartitionAnswer(i, 10, error_message="x" * (i * 40), leader_id=i, leader_epoch=i)
        for i in range(300)
    ]
    topic: Any = b"i" * 16 if version >= BY_ID_FROM else "größer" * 40
    frame = encode_produce_response(1, version, [(topic, answers)])
    at = 9 if version >= 9 else 8
    back = ProduceResponse.decode(frame[at:], version)
    [of_topic] = back.responses
    found = of_topic.partition_responses
    assert [(p.index, p.error_code) for p in found] == [(i, 10) for i in range(300)]
    if version >= 8:
        assert [p.error_message for p in found] == [p.error_message for p in answers]
    if version >= 10:
        assert [p.current_leader.leader_id for p in found] == list(range(300))
