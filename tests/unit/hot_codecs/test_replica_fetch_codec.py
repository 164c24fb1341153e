"""The hand-tuned codec of a follower's Fetch writes and reads what the generated one does."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base import results
from penstock.base.errors import InvariantBroken
from penstock.wire import fetch_codec
from penstock.wire.errors import WireError
from penstock.wire.messages import fetch as table
from penstock.wire.replica_fetch_codec import (
    REPLICA_STATE_FROM,
    TOPIC_ID_FROM,
    FetchAnswer,
    FetchedPartition,
    FetchPosition,
    FetchRequestHead,
    decode_fetch_response,
    encode_fetch_request,
)
from unit.hot_codecs.mutations import mutated, rounds
from unit.wire.random_messages import random_struct

LATEST = table.FetchRequest.VERSIONS[-1]
REQUEST_VERSIONS = range(REPLICA_STATE_FROM, LATEST + 1)
RESPONSE_VERSIONS = range(TOPIC_ID_FROM, LATEST + 1)
DECODE_SECONDS_MAX = 1.0  # far above what a frame of this size takes, far below a stall
SEED = 20_261_115

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
ids = st.binary(min_size=16, max_size=16)
heads = st.builds(FetchRequestHead, int32s, int64s, int32s, int32s, int32s, int32s, int32s)
positions = st.builds(FetchPosition, int32s, int32s, int64s, int32s, int64s, int32s)


def table_request(version: int, head: FetchRequestHead, topics: Any, forgotten: Any) -> bytes:
    request = table.FetchRequest(
        replica_state=table.ReplicaState(
            replica_id=head.replica_id, replica_epoch=head.broker_epoch
        ),
        max_wait_ms=head.max_wait_ms,
        min_bytes=head.min_bytes,
        max_bytes=head.max_bytes,
        session_id=head.session_id,
        session_epoch=head.session_epoch,
        topics=[
            table.FetchTopic(
                topic_id=topic_id,
                partitions=[
                    table.FetchPartition(
                        partition=p.partition,
                        current_leader_epoch=p.current_leader_epoch,
                        fetch_offset=p.fetch_offset,
                        last_fetched_epoch=p.last_fetched_epoch,
                        log_start_offset=p.log_start_offset,
                        partition_max_bytes=p.max_bytes,
                    )
                    for p in of_topic
                ],
            )
            for topic_id, of_topic in topics
        ],
        forgotten_topics_data=[
            table.ForgottenTopic(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in forgotten
        ],
    )
    return request.encode(version)


def same_answer(response: table.FetchResponse) -> FetchAnswer:
    """What the hand-tuned decoder is to make of `response`."""
    return FetchAnswer(
        response.error_code,
        response.session_id,
        [
            (
                topic.topic_id,
                [
                    FetchedPartition(
                        p.partition_index,
                        p.error_code,
                        p.high_watermark,
                        p.last_stable_offset,
                        p.log_start_offset,
                        None if p.records is None else memoryview(p.records),
                        p.diverging_epoch.epoch,
                        p.diverging_epoch.end_offset,
                        p.current_leader.leader_id,
                        p.current_leader.leader_epoch,
                        p.snapshot_id.end_offset,
                        p.snapshot_id.epoch,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in response.responses
        ],
    )


def decoded(raw: bytes, version: int) -> FetchAnswer | None:
    """What the hand-tuned decoder makes of `raw`; None for a WireError, in bounded time."""
    began = time.thread_time()
    try:
        return decode_fetch_response(memoryview(raw), 0, version)
    except WireError:
        return None
    finally:
        assert time.thread_time() - began < DECODE_SECONDS_MAX, raw


@given(
    st.sampled_from(REQUEST_VERSIONS),
    heads.filter(lambda head: (head.replica_id, head.broker_epoch) != (-1, -1)),
    st.lists(st.tuples(ids, st.lists(positions, max_size=4)), max_size=3),
    st.lists(st.tuples(ids, st.lists(int32s, max_size=4)), max_size=3),
)
@settings(max_examples=200, deadline=None)
def test_a_request_has_the_bytes_of_the_table(
    version: int, head: FetchRequestHead, topics: Any, forgotten: Any
) -> None:
    raw = encode_fetch_request(version, head, topics, forgotten)
    assert raw == table_request(version, head, topics, forgotten)


def test_a_request_with_longer_arrays_than_one_byte_counts() -> None:
    head = FetchRequestHead(2, 77, 9, 4, 500, 1, 10_485_760)
    many = [FetchPosition(i, 3, i * 1000, 2, 0, 1_048_576) for i in range(300)]
    topics = [(bytes([i]) * 16, many[: i + 1]) for i in range(200)]
    forgotten = [(bytes([i]) * 16, list(range(200))) for i in range(150)]
    raw = encode_fetch_request(LATEST, head, topics, forgotten)
    assert raw == table_request(LATEST, head, topics, forgotten)


def test_a_request_without_news_is_short() -> None:
    """In a session at rest it does not matter how many partitions the session holds."""
    head = FetchRequestHead(2, 77, 9, 4, 500, 1, 10_485_760)
    raw = encode_fetch_request(LATEST, head, [])
    assert raw == table_request(LATEST, head, [], [])
    assert len(raw) < 64


@given(st.sampled_from(RESPONSE_VERSIONS), st.randoms(use_true_random=False), st.binary(max_size=9))
@settings(max_examples=300, deadline=None)
def test_an_answer_is_read_as_the_table_reads_it(version: int, rng: Random, before: bytes) -> None:
    response = random_struct(table.FetchResponse, version, rng)
    raw = before + response.encode(version)
    assert decode_fetch_response(memoryview(raw), len(before), version) == same_answer(response)


@pytest.mark.parametrize("version", RESPONSE_VERSIONS)
def test_the_leaders_own_encoder_is_understood(version: int) -> None:
    data = [
        results.PartitionData(i, 0, i * 10, i * 9, i, records=b"r" * i * 50) for i in range(200)
    ]
    data.append(results.PartitionData(200, diverging_epoch=3, diverging_end_offset=70))
    data.append(results.PartitionData(201, error_code=6, leader_id=2, leader_epoch=8))
    parts = fetch_codec.encode_fetch_response(5, version, 0, 99, [(b"i" * 16, data)])
    frame = memoryview(b"".join(parts))
    answer = decode_fetch_response(frame, 9, version)
    assert answer == same_answer(table.FetchResponse.decode(frame[9:], version))
    (_, partitions) = answer.topics[0]
    assert partitions[200].diverging_end_offset == 70
    assert (partitions[201].leader_id, partitions[201].leader_epoch) == (2, 8)


@pytest.mark.parametrize("version", RESPONSE_VERSIONS)
def test_records_are_views_of_the_frame(version: int) -> None:
    data = table.PartitionData(partition_index=1, records=b"r" * 5000)
    topic = table.FetchableTopicResponse(topic_id=b"i" * 16, partitions=[data])
    frame = bytearray(table.FetchResponse(responses=[topic]).encode(version))
    answer = decode_fetch_response(memoryview(frame), 0, version)
    records = answer.topics[0][1][0].records
    assert records is not None
    frame[frame.index(b"r")] = ord("R")
    assert bytes(records) == b"R" + b"r" * 4999


def test_bytes_left_over_are_an_error() -> None:
    raw = table.FetchResponse().encode(LATEST)
    assert decode_fetch_response(memoryview(raw), 0, LATEST) == FetchAnswer(0, 0, [])
    with pytest.raises(WireError, match="1 bytes are left over"):
        decode_fetch_response(memoryview(raw + b"\0"), 0, LATEST)


def test_versions_without_what_a_follower_needs() -> None:
    head = FetchRequestHead(2, 77, 0, 0, 500, 1, 1000)
    with pytest.raises(InvariantBroken, match="asks in Fetch v15"):
        encode_fetch_request(REPLICA_STATE_FROM - 1, head, [])
    with pytest.raises(InvariantBroken, match="reads Fetch v13"):
        decode_fetch_response(memoryview(b""), 0, TOPIC_ID_FROM - 1)


def test_fuzz_random_bytes() -> None:
    rng = Random(SEED)
    for _ in rounds(0.3):
        decoded(rng.randbytes(rng.randrange(300)), LATEST)
        decoded(bytes(10) + rng.randbytes(rng.randrange(300)), LATEST)


def test_fuzz_mutated_answers_agree_with_the_generated_decoder() -> None:
    """What the strict, generated decoder accepts, the hand-tuned one reads the same way."""
    rng = Random(SEED)
    accepted = refused = 0
    for number in rounds():
        version = RESPONSE_VERSIONS[number % len(RESPONSE_VERSIONS)]
        raw = mutated(random_struct(table.FetchResponse, version, rng).encode(version), rng)
        answer = decoded(raw, version)
        try:
            response = table.FetchResponse.decode(memoryview(raw), version)
        except WireError:
            refused += 1
            continue
        accepted += 1
        assert answer == same_answer(response), (version, raw)
    assert accepted
    assert refused


def test_fuzz_nested_counts() -> None:
    """Counts that announce more than there is end with the frame, not with the memory."""
    rng = Random(SEED)
    for _ in rounds(0.3):
        body = rng.choice((b"\x7f", b"\xff\xff\x3f", b"\x02", b"\x00\x00\x00\x7f", b"\x01"))
        decoded(bytes(10) + body * rng.randrange(1, 2000), LATEST)
