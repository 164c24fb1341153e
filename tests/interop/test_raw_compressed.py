"""Compressed batches with a right checksum and a wrong inside: none reaches a consumer.

Where Kafka fails by accident (UNKNOWN_SERVER_ERROR) or stores what no consumer reads, an answer
that names the cause is as good, and better. Everywhere else the codes are the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import cramjam
import pytest
from confluent_kafka import Consumer

from penstock.base.errors import ErrorCode
from support.batches import Rec, heads, record, varint
from support.calls import RawTopic, fetch, find_topic, list_offset, produce
from support.helpers import TopicMaker
from support.process import BrokerProcess
from support.raw import RawClient
from support.spoiled import (
    CODECS,
    GZIP,
    HEAD,
    INSIDES,
    LZ4,
    PACK,
    SNAPPY,
    T0,
    ZSTD,
    one,
    packed,
    raw_packed,
    records,
)

NONE, INVALID, ACCIDENT = (
    ErrorCode.NONE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
TAKEN = {"right", "right, headers", "record attributes"}
STORED_BY_KAFKA = {
    "length too large",
    "length one too large",
    "length one too small",
    "length negative",
    "lengths that make up for each other",
    "key of -2 bytes",
    "value of -7 bytes",
    "header value of -2 bytes",
    "record attributes like a varint",
}
"""It skips over keys and values and compares no record's length with what it skipped."""
FAILED_BY_KAFKA = {name for name in INSIDES if name.startswith("offset delta")}
SLOW_SECONDS = 30


@pytest.fixture
def raw(node: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(node.host, node.port, seconds=SLOW_SECONDS) as client:
        yield client


@pytest.fixture
def known(raw: RawClient, topic: TopicMaker) -> RawTopic:
    return find_topic(raw, topic())


def stored(raw: RawClient, known: RawTopic) -> int:
    return int(list_offset(raw, known, -1).offset)


@pytest.mark.parametrize("case", INSIDES)
def test_what_a_stream_holds(raw: RawClient, known: RawTopic, target: str, case: str) -> None:
    inside, count = INSIDES[case]
    expected = NONE if case in TAKEN else INVALID
    if target == "kafka":
        expected = NONE if case in STORED_BY_KAFKA else expected
        expected = ACCIDENT if case in FAILED_BY_KAFKA else expected
    end = 0
    for codec in CODECS.values():
        answer = produce(raw, known, packed(inside, codec, count))
        assert ErrorCode(answer.error_code) is expected
        end += count if expected is NONE else 0
        assert stored(raw, known) == end
    assert produce(raw, known, packed(records(1), ZSTD, 1)).base_offset == end


def streams(codec: int) -> dict[str, bytes]:
    """Compressed parts that are not what the attributes say, or not whole."""
    right = PACK[codec](records(150))
    return {
        "rubbish": b"\xff" * 40,
        "nothing": b"",
        "cut by a byte": right[:-1],
        "cut by ten": right[:-10],
        "cut in half": right[: len(right) // 2],
        "of another codec": PACK[LZ4 if codec == ZSTD else ZSTD](records(150)),
        "not compressed": records(150),
        "followed by something": right + b"rubbish",
    }


@pytest.mark.parametrize("case", streams(GZIP))
@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_what_is_no_stream(
    raw: RawClient, known: RawTopic, target: str, codec: int, case: str
) -> None:
    answer = produce(raw, known, raw_packed(streams(codec)[case], codec, 150))
    if target == "kafka" and case == "followed by something" and codec in (GZIP, LZ4):
        assert answer.error_code == NONE  # librdkafka refuses such LZ4 data
        return
    assert ErrorCode(answer.error_code) in ({INVALID, ACCIDENT} if target == "kafka" else {INVALID})
    assert stored(raw, known) == 0


def test_framings_that_clients_differ_in(raw: RawClient, known: RawTopic) -> None:
    """Java's reader takes one LZ4 frame of independent blocks, and any number of other streams."""
    inside = records(2)
    parts = inside[:20], inside[20:]
    for codec in (GZIP, SNAPPY, ZSTD):
        two = PACK[codec](parts[0]) + PACK[codec](parts[1])
        assert produce(raw, known, raw_packed(two, codec, 2)).error_code == NONE
    two = PACK[LZ4](parts[0]) + PACK[LZ4](parts[1])
    assert produce(raw, known, raw_packed(two, LZ4, 2)).error_code == INVALID
    linked = bytes(cramjam.lz4.compress(inside))
    assert produce(raw, known, raw_packed(linked, LZ4, 2)).error_code in (INVALID, ACCIDENT)
    block = bytes(cramjam.snappy.compress_raw(inside))
    assert produce(raw, known, raw_packed(block, SNAPPY, 2)).error_code == NONE
    assert stored(raw, known) == 8


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_times_and_keys(raw: RawClient, topic: TopicMaker, codec: int) -> None:
    plain = find_topic(raw, topic())
    now = int(time.time() * 1000)
    times = (T0, now + 10**8, T0)
    late = b"".join(record(Rec(timestamp=at), i, T0) for i, at in enumerate(times))
    answer = produce(raw, plain, packed(late, codec, 3, max_timestamp=T0))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [entry.batch_index for entry in answer.record_errors] == [1]
    for claimed in (5, now + 10**8):
        assert (
            produce(raw, plain, packed(records(2), codec, 2, max_timestamp=claimed)).error_code == 0
        )
    assert [head.max_timestamp for head in heads(fetch(raw, plain, 0).records)] == [T0, T0]

    compacted = find_topic(raw, topic(config={"cleanup.policy": "compact"}))
    mixed = record(Rec(key=b"k"), 0, T0) + record(Rec(), 1, T0)
    answer = produce(raw, compacted, packed(mixed, codec, 2))
    assert answer.error_code == INVALID
    assert [entry.batch_index for entry in answer.record_errors] == [1]
    assert produce(raw, compacted, packed(records(2), codec, 2)).base_offset == 0

    stamped = find_topic(raw, topic(config={"message.timestamp.type": "LogAppendTime"}))
    answer = produce(raw, stamped, packed(late, codec, 3))
    assert answer.log_append_time_ms >= now
    [head] = heads(fetch(raw, stamped, 0).records)
    assert head.max_timestamp == answer.log_append_time_ms
    assert produce(raw, plain, packed(b"", codec, 0)).error_code == INVALID


def bomb(size: int) -> bytes:
    """One record with a value of that many zeros."""
    return one(HEAD + varint(-1) + varint(size) + bytes(size) + varint(0))


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_a_large_record_is_taken(raw: RawClient, topic: TopicMaker, codec: int) -> None:
    known = find_topic(raw, topic())
    answer = produce(raw, known, packed(bomb(64 << 20), codec, 1))
    assert answer.error_code == NONE
    answer = produce(raw, known, packed(bytes(64 << 20), codec, 5))
    assert answer.error_code == INVALID
    assert stored(raw, known) == 1


@pytest.mark.penstock_only  # Kafka stores it, and librdkafka's consumers never get past it
@pytest.mark.parametrize("megabytes", [110, 1024])
def test_a_bomb_is_refused(raw: RawClient, known: RawTopic, megabytes: int) -> None:
    answer = produce(raw, known, packed(bomb(megabytes * 1_000_000), ZSTD, 1))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert stored(raw, known) == 0


def test_the_largest_that_is_taken_is_read(
    node: BrokerProcess, raw: RawClient, topic: TopicMaker
) -> None:
    """By a consumer of librdkafka in its default settings, which reads 100 MB of zstd at most."""
    known = find_topic(raw, topic())
    inside = bomb(100_000_000 - len(bomb(0)) - 6)
    assert 99_999_900 < len(inside) <= 100_000_000
    for _ in range(2):
        assert produce(raw, known, packed(inside, ZSTD, 1)).error_code == NONE
    settings: dict[str, Any] = {
        "bootstrap.servers": f"{node.host}:{node.port}",
        "group.id": known.name,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe([known.name])
        found = consumer.consume(2, timeout=SLOW_SECONDS)
        assert [message.error() for message in found] == [None, None]
        assert [message.offset() for message in found] == [0, 1]
    finally:
        consumer.close()
