"""What a broker sends may be cut anywhere: the counts of Kafka's wire stay exact."""

from __future__ import annotations

import struct

import pytest
from bench.peers.kafka_wire import KafkaConsumer, KafkaPublisher
from bench.peers.wire import PeerError
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode
from penstock.cli.bench.requests import FETCH_VERSION, PRODUCE_VERSION, FetchFrame, batch_of
from penstock.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from penstock.wire.messages.header import ResponseHeader
from penstock.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

TOPIC = "load-1"


def framed(body: bytes) -> bytes:
    header = bytes(ResponseHeader(correlation_id=0).encode(1))
    return struct.pack(">i", len(header) + len(body)) + header + body


def fetched(records: bytes | None, error: int = 0) -> bytes:
    partition = PartitionData(
        partition_index=0, error_code=error, high_watermark=9, records=records
    )
    topic = FetchableTopicResponse(topic=TOPIC, partitions=[partition])
    return framed(bytes(FetchResponse(responses=[topic]).encode(FETCH_VERSION)))


def produced(error: int = 0) -> bytes:
    partition = PartitionProduceResponse(index=0, error_code=error, base_offset=7)
    topic = TopicProduceResponse(name=TOPIC, partition_responses=[partition])
    return framed(bytes(ProduceResponse(responses=[topic]).encode(PRODUCE_VERSION)))


def batches(*counts: int, size: int = 30) -> bytes:
    """Batches behind each other, with the offsets that a log gives them."""
    found, offset = b"", 0
    for count in counts:
        batch = bytearray(batch_of(size, count))
        struct.pack_into(">q", batch, 0, offset)
        found += bytes(batch)
        offset += count
    return found


def pieces(data: bytes, sizes: list[int]) -> list[memoryview]:
    found = []
    for size in sizes:
        found.append(memoryview(data[:size]))
        data = data[size:]
    return [*found, memoryview(data)]


@given(st.lists(st.integers(1, 200), max_size=40), st.lists(st.integers(1, 5), max_size=5))
def test_messages_are_counted_and_the_next_offset_asked_for(
    sizes: list[int], counts: list[int]
) -> None:
    answer = fetched(batches(*counts) or None)
    consumer = KafkaConsumer(TOPIC)
    got = [consumer.received(piece) for piece in pieces(answer, sizes) if len(piece)]
    assert sum(received.messages for received in got) == sum(counts)
    replies = [bytes(received.reply) for received in got if received.reply is not None]
    assert replies == [bytes(FetchFrame(TOPIC, 0, 1024 * 1024, 500).at(sum(counts), 0))]


@pytest.mark.parametrize("size", range(1, 400, 7))
def test_answers_of_any_length_follow_each_other(size: int) -> None:
    consumer = KafkaConsumer(TOPIC)
    for _ in range(2):
        assert consumer.received(memoryview(fetched(batches(1, size=size)))).messages == 1


@pytest.mark.parametrize("kept", [1, 60, 61, 70])
def test_a_torn_batch_at_the_end_is_asked_for_again(kept: int) -> None:
    whole = batches(3)
    torn = batches(3, 2)[: len(whole) + kept]
    consumer = KafkaConsumer(TOPIC)
    received = consumer.received(memoryview(fetched(torn)))
    assert received.messages == 3
    assert received.reply == FetchFrame(TOPIC, 0, 1024 * 1024, 500).at(3, 0)


def test_a_refused_fetch_is_an_error() -> None:
    answer = fetched(None, ErrorCode.OFFSET_OUT_OF_RANGE)
    with pytest.raises(PeerError, match="OFFSET_OUT_OF_RANGE"):
        KafkaConsumer(TOPIC).received(memoryview(answer))


@given(st.lists(st.integers(1, 90), max_size=12))
def test_acknowledgements_are_counted(sizes: list[int]) -> None:
    publisher = KafkaPublisher(TOPIC, bytearray())
    answers = produced() * 5
    assert sum(publisher.acknowledged(piece) for piece in pieces(answers, sizes)) == 5


@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_refused_batch_is_an_error(before: int) -> None:
    publisher = KafkaPublisher(TOPIC, bytearray())
    for _ in range(before):
        assert publisher.acknowledged(memoryview(produced())) == 1
    with pytest.raises(PeerError, match="MESSAGE_TOO_LARGE"):
        publisher.acknowledged(memoryview(produced(ErrorCode.MESSAGE_TOO_LARGE)))
