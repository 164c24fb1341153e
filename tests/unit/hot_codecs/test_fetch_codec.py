"""The hand-tuned encoder of the Fetch answer writes what the generated one writes."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base import results
from penstock.base.steps import at_once
from penstock.wire import fetch_codec
from penstock.wire.fetch_codec import PartitionData, encode_fetch_response, encode_in_steps
from penstock.wire.messages import fetch as table
from penstock.wire.messages.header import ResponseHeader
from penstock.wire.produce_codec import LeaderEndpoint

VERSIONS = table.FetchResponse.VERSIONS
FLEXIBLE = table.FetchResponse.FLEXIBLE_FROM
BY_ID_FROM = 13
ENDPOINTS_FROM = 16

int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=40)
ids = st.binary(min_size=16, max_size=16)
endpoints = st.builds(LeaderEndpoint, int32s, names, int32s, st.none() | names)
nothing = st.just((-1, -1))
aborted = st.none() | st.lists(st.builds(results.AbortedTransaction, int64s, int64s), max_size=5)
records: st.SearchStrategy[Any] = st.binary(max_size=300) | st.binary(max_size=50).map(
    lambda raw: memoryview(raw)[:]
)


def _data(leader: Any, diverging: Any, *fields: Any, replica: int) -> PartitionData:
    return PartitionData._make((*fields, *leader, *diverging, replica))


partitions = st.builds(
    _data,
    nothing | st.tuples(st.integers(0, 2**31 - 1), int32s),
    nothing | st.tuples(int32s, st.integers(0, 2**63 - 1)),
    int32s,
    int16s,
    int64s,
    int64s,
    int64s,
    aborted,
    records,
    replica=int32s,
)


def table_data(p: PartitionData, version: int) -> table.PartitionData:
    later: dict[str, Any] = {}
    if version >= 11:
        later["preferred_read_replica"] = p.preferred_read_replica
    if version >= 12:
        later["diverging_epoch"] = table.EpochEndOffset(
            epoch=p.diverging_epoch, end_offset=p.diverging_end_offset
        )
        later["current_leader"] = table.LeaderIdAndEpoch(
            leader_id=p.leader_id, leader_epoch=p.leader_epoch
        )
    return table.PartitionData(
        partition_index=p.partition,
        error_code=p.error_code,
        high_watermark=p.high_watermark,
        last_stable_offset=p.last_stable_offset,
        log_start_offset=p.log_start_offset,
        aborted_transactions=None
        if p.aborted_transactions is None
        else [
            table.AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset)
            for txn in p.aborted_transactions
        ],
        records=bytes(p.records),
        **later,
    )


def table_frame(
    correlation_id: int,
    version: int,
    error_code: int,
    session_id: int,
    topics: Any,
    endpoints: Any = (),
    throttle_ms: int = 0,
) -> bytes:
    sessions: dict[str, Any] = (
        {"error_code": error_code, "session_id": session_id} if version >= 7 else {}
    )
    response = table.FetchResponse(
        **sessions,
        responses=[
            table.FetchableTopicResponse(
                **{"topic_id" if version >= BY_ID_FROM else "topic": topic},
                partitions=[table_data(p, version) for p in of_topic],
            )
            for topic, of_topic in topics
        ],
        node_endpoints=[
            table.NodeEndpoint(node_id=e.id, host=e.host, port=e.port, rack=e.rack)
            for e in (endpoints if version >= ENDPOINTS_FROM else ())
        ],
        throttle_time_ms=throttle_ms,
    )
    flexible = FLEXIBLE is not None and version >= FLEXIBLE
    header = ResponseHeader(correlation_id=correlation_id).encode(int(flexible))
    body = bytes(header) + bytes(response.encode(version))
    return struct.pack(">i", len(body)) + body


def test_the_versions_are_those_of_the_table() -> None:
    assert list(VERSIONS) == list(range(4, 19))
    assert FLEXIBLE == fetch_codec.FLEXIBLE_FROM


@given(st.data(), st.sampled_from(VERSIONS), int32s, int16s, int32s)
@settings(max_examples=100, deadline=None)
def test_an_answer_has_the_bytes_of_the_table(
    data: st.DataObject, version: int, correlation_id: int, error_code: int, session_id: int
) -> None:
    keys: st.SearchStrategy[Any] = ids if version >= BY_ID_FROM else names
    topics = data.draw(st.lists(st.tuples(keys, st.lists(partitions, max_size=4)), max_size=3))
    named = data.draw(st.lists(endpoints, max_size=3))
    head = (correlation_id, version, error_code, session_id)
    parts = encode_fetch_response(*head, topics, named)
    frame = b"".join(bytes(part) for part in parts)
    assert frame == table_frame(*head, topics, named)
    in_steps = at_once(encode_in_steps(correlation_id, version, session_id, topics, named))
    whole = encode_fetch_response(correlation_id, version, 0, session_id, topics, named)
    assert [bytes(part) for part in in_steps] == [bytes(part) for part in whole]


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_handed_on_without_a_copy(version: int) -> None:
    one, two = memoryview(b"a" * 1000), b"b" * 2000
    topic: Any = b"i" * 16 if version >= BY_ID_FROM else "t"
    topics = [(topic, [PartitionData(0, records=one), PartitionData(1, records=two)])]
    parts = encode_fetch_response(1, version, 0, 0, topics)
    assert any(part is one for part in parts)
    assert any(part is two for part in parts)
    frame = b"".join(bytes(part) for part in parts)
    assert frame == table_frame(1, version, 0, 0, topics)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_about_nothing(version: int) -> None:
    """A session error, or a session without news."""
    topic: Any = b"i" * 16 if version >= BY_ID_FROM else "t"
    about: list[Any] = [[], [(topic, [])]]
    for topics in about:
        for throttle_ms in (0, 1234):
            parts = encode_fetch_response(5, version, 70, 9, topics, (), throttle_ms)
            frame = b"".join(bytes(part) for part in parts)
            assert frame == table_frame(5, version, 70, 9, topics, (), throttle_ms)


@pytest.mark.parametrize("version", [11, 12, 18])
def test_more_partitions_and_aborted_transactions_than_one_byte_counts(version: int) -> None:
    txns = [results.AbortedTransaction(i, i) for i in range(200)]
    of_topic = [PartitionData(i, aborted_transactions=txns, records=b"r" * i) for i in range(200)]
    topic: Any = b"i" * 16 if version >= BY_ID_FROM else "t" * 200
    frame = b"".join(bytes(p) for p in encode_fetch_response(1, version, 0, 0, [(topic, of_topic)]))
    assert frame == table_frame(1, version, 0, 0, [(topic, of_topic)])
    # In steps too, however the partitions fall into them.
    steps = encode_in_steps(1, version, 0, [(topic, of_topic)])
    stops, done = 0, None
    while done is None:
        try:
            next(steps)
            stops += 1
        except StopIteration as end:
            done = end.value
    assert b"".join(bytes(part) for part in done) == frame
    assert stops >= len(of_topic) / fetch_codec.PARTITIONS_PER_STEP
