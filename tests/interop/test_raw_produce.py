"""What a producer may and may not send: sequences, bad batches, timestamps, sizes, acks."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import cramjam
import pytest

from penstock.base.errors import ErrorCode
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support import batches
from support.batches import Rec, batch
from support.calls import (
    RawTopic,
    fetch,
    find_topic,
    init_producer,
    list_offset,
    produce,
    produce_request,
)
from support.helpers import TopicMaker, eventually, make_topic
from support.process import BrokerProcess
from support.raw import Closed, RawClient

GZIP = 1
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20


@pytest.fixture
def raw(node: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(node.host, node.port) as client:
        yield client


@pytest.fixture
def known(raw: RawClient, topic: TopicMaker) -> RawTopic:
    return find_topic(raw, topic())


def numbered(pid: tuple[int, int], sequence: int, count: int = 1, **fields: Any) -> bytes:
    """A batch of an idempotent producer, dated now: by its timestamps a producer is forgotten."""
    now = int(time.time() * 1000)
    records = [Rec(f"{sequence + i}".encode(), timestamp=now) for i in range(count)]
    numbers = {"producer_id": pid[0], "producer_epoch": pid[1], "base_sequence": sequence}
    return batch(records, **(numbers | fields))


def end_of(raw: RawClient, known: RawTopic) -> int:
    return int(list_offset(raw, known, -1).offset)


# Idempotence


def test_a_duplicate_is_answered_with_its_first_offset(raw: RawClient, known: RawTopic) -> None:
    pid = init_producer(raw)
    sent = [numbered(pid, sequence, 2) for sequence in (0, 2, 4, 6, 8)]
    assert [produce(raw, known, data).base_offset for data in sent] == [0, 2, 4, 6, 8]
    for data, offset in zip(sent, (0, 2, 4, 6, 8), strict=True):
        again = produce(raw, known, data)
        assert (again.error_code, again.base_offset) == (0, offset)
    assert end_of(raw, known) == 10


def test_only_the_last_five_batches_are_remembered(raw: RawClient, known: RawTopic) -> None:
    pid = init_producer(raw)
    for sequence in range(6):
        assert produce(raw, known, numbered(pid, sequence)).error_code == 0
    oldest = produce(raw, known, numbered(pid, 0))
    assert oldest.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(raw, known, numbered(pid, 1)).base_offset == 1
    assert end_of(raw, known) == 6


def test_a_gap_in_the_sequence_is_refused(raw: RawClient, known: RawTopic) -> None:
    pid = init_producer(raw)
    produce(raw, known, numbered(pid, 0))
    gap = produce(raw, known, numbered(pid, 2))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert gap.base_offset == -1
    assert produce(raw, known, numbered(pid, 1)).base_offset == 1


def test_a_new_producer_may_start_anywhere(raw: RawClient, known: RawTopic) -> None:
    pid = init_producer(raw)
    assert produce(raw, known, numbered(pid, 5)).error_code == 0
    assert produce(raw, known, numbered(pid, 6)).error_code == 0


def test_an_old_epoch_is_refused_and_a_new_one_starts_at_zero(
    raw: RawClient, known: RawTopic
) -> None:
    producer_id, epoch = init_producer(raw)
    produce(raw, known, numbered((producer_id, epoch + 1), 0))
    old = produce(raw, known, numbered((producer_id, epoch), 1))
    assert old.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    skipped = produce(raw, known, numbered((producer_id, epoch + 2), 3))
    assert skipped.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(raw, known, numbered((producer_id, epoch + 2), 0)).error_code == 0


def test_the_sequence_wraps(raw: RawClient, known: RawTopic) -> None:
    pid, top = init_producer(raw), 2**31 - 1
    assert produce(raw, known, numbered(pid, top - 1, 1)).error_code == 0
    assert produce(raw, known, numbered(pid, top, 2)).error_code == 0
    assert produce(raw, known, numbered(pid, 1, 1)).error_code == 0
    again = produce(raw, known, numbered(pid, top, 2))
    assert (again.error_code, again.base_offset) == (0, 1)


def test_producers_do_not_mix(raw: RawClient, known: RawTopic) -> None:
    one, two = init_producer(raw), init_producer(raw)
    for sequence in range(3):
        assert produce(raw, known, numbered(one, sequence)).error_code == 0
        assert produce(raw, known, numbered(two, sequence)).error_code == 0
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=known.name, partition_indexes=[0, 9])]
    )
    found = {p.partition_index: p for p in raw.call(request, 0).topics[0].partitions}
    assert found[9].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    active = {(p.producer_id, p.producer_epoch, p.last_sequence) for p in found[0].active_producers}
    assert active == {(*one, 2), (*two, 2)}


# Bad batches: nothing of them may be stored

CORRUPT, INVALID = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD
# Where Kafka fails by accident (UNKNOWN_SERVER_ERROR), an answer that names the cause is as good.
ANY = {CORRUPT, INVALID, ErrorCode.UNKNOWN_SERVER_ERROR}

BAD: dict[str, tuple[bytes, set[ErrorCode]]] = {
    "checksum": (batch([b"x"], crc=12345), {CORRUPT}),
    "flipped byte": (batch([b"x"])[:-1] + b"?", {CORRUPT}),
    "count too high": (batch([b"x"], count=5, last_offset_delta=4), {INVALID}),
    "count too low": (batch([b"x", b"y"], count=1, last_offset_delta=0), {INVALID}),
    "count unlike last offset": (batch([b"x", b"y"], last_offset_delta=0), {INVALID}),
    "negative count": (batch([b"x"], count=-1), {INVALID}),
    "no records": (batch([], count=0, last_offset_delta=-1), {INVALID}),
    "garbage for records": (batch([b"x"], payload=b"\xff" * 40), ANY),
    "unknown compression": (
        batch([b"x"], attributes=7),
        {*ANY, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE},
    ),
    "control batch": (batch([b"x"], attributes=CONTROL), {INVALID}),
    "length beyond the end": (batch([b"x"], length=5000), {INVALID, CORRUPT}),
    "length too small": (batch([b"x"], length=3), {CORRUPT}),
    "negative length": (batch([b"x"], length=-1), {CORRUPT}),
    "cut short": (batch([b"x" * 100])[:-50], {INVALID, CORRUPT}),
    "future magic": (batch([b"x"], magic=3), {CORRUPT, INVALID}),
    "base offset not zero": (batch([b"x"], base_offset=777), {INVALID}),
    "two batches": (batch([b"x"]) + batch([b"y"]), {INVALID}),
    "empty": (b"", {INVALID}),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_batches_are_refused(raw: RawClient, known: RawTopic, case: str) -> None:
    data, codes = BAD[case]
    answer = produce(raw, known, data)
    assert ErrorCode(answer.error_code) in codes
    assert answer.base_offset == -1
    assert end_of(raw, known) == 0
    assert produce(raw, known, batch([b"good"])).base_offset == 0


@pytest.mark.penstock_only  # Apache Kafka never answers this one
def test_no_records_at_all(raw: RawClient, known: RawTopic) -> None:
    assert produce(raw, known, None).error_code != 0
    assert produce(raw, known, batch([b"good"])).base_offset == 0


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("version", [3, 9])
def test_old_message_formats_are_refused(
    raw: RawClient, known: RawTopic, magic: int, version: int
) -> None:
    data = batches.old_message(b"x", magic)
    answer = produce(raw, known, data, version)
    assert answer.error_code != 0
    assert end_of(raw, known) == 0


def test_a_transactional_batch_without_a_transaction_is_refused(
    raw: RawClient, known: RawTopic
) -> None:
    """It would open a transaction that nobody can end, and hold up `read_committed` for good."""
    pid = init_producer(raw)
    raw.send(produce_request(known, numbered(pid, 0, attributes=TRANSACTIONAL), 9), 9)
    try:
        answer = raw.receive(ProduceRequest, 9)
        code = answer.responses[0].partition_responses[0].error_code
    except Closed:
        code = None
    assert code != 0


# Sizes


@pytest.mark.parametrize("codec", [0, GZIP])
def test_too_large_a_batch(raw: RawClient, topic: TopicMaker, codec: int) -> None:
    known = find_topic(raw, topic(config={"max.message.bytes": "500"}))
    payload = bytes(cramjam.gzip.compress(random.Random(1).randbytes(900))) if codec else None
    data = batch([b"x" * 900], attributes=codec, payload=payload)
    answer = produce(raw, known, data)
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    exact = batch([b"x" * (500 - len(batch([b""])) - 2)])
    assert len(exact) == 500
    assert produce(raw, known, exact).error_code == 0
    more = batch([b"x" * (501 - len(batch([b""])) - 2)])
    assert produce(raw, known, more).error_code == ErrorCode.MESSAGE_TOO_LARGE


# Timestamps


def test_timestamps_outside_the_allowed_window(raw: RawClient, topic: TopicMaker) -> None:
    window = {"message.timestamp.before.max.ms": "60000", "message.timestamp.after.max.ms": "60000"}
    known = find_topic(raw, topic(config=window))
    now = int(time.time() * 1000)
    for stamp, code in (
        (now, 0),
        (now - 50_000, 0),
        (now - 120_000, ErrorCode.INVALID_TIMESTAMP),
        (now + 50_000, 0),
        (now + 120_000, ErrorCode.INVALID_TIMESTAMP),
    ):
        assert produce(raw, known, batch([Rec(timestamp=stamp)])).error_code == code
    assert end_of(raw, known) == 3


def test_the_default_window_ends_an_hour_from_now(raw: RawClient, known: RawTopic) -> None:
    now = int(time.time() * 1000)
    late = produce(raw, known, batch([Rec(timestamp=now + 2 * 3_600_000)]))
    assert late.error_code == ErrorCode.INVALID_TIMESTAMP
    assert produce(raw, known, batch([Rec(timestamp=0)])).error_code == 0


def test_log_append_time(raw: RawClient, topic: TopicMaker) -> None:
    known = find_topic(raw, topic(config={"message.timestamp.type": "LogAppendTime"}))
    before = int(time.time() * 1000)
    answer = produce(raw, known, batch([Rec(timestamp=5), Rec(timestamp=6)]))
    assert before <= answer.log_append_time_ms <= int(time.time() * 1000)
    [head] = batches.heads(fetch(raw, known, 0).records)
    assert head.attributes & LOG_APPEND_TIME
    assert head.max_timestamp == answer.log_append_time_ms
    found = list_offset(raw, known, -3)
    assert (found.offset, found.timestamp) == (0, answer.log_append_time_ms)


# Acks and addresses


def test_acks_0_is_not_answered(raw: RawClient, known: RawTopic) -> None:
    for i in range(20):
        raw.send(produce_request(known, batch([str(i).encode()]), 9, acks=0), 9)
    assert raw.call(ApiVersionsRequest(), 0).error_code == 0
    assert end_of(raw, known) == 20


def test_a_refused_batch_with_acks_0_closes_the_connection(raw: RawClient, known: RawTopic) -> None:
    raw.send(produce_request(known, batch([b"x"], crc=1), 9, acks=0), 9)
    assert raw.is_closed(10)


@pytest.mark.parametrize("acks", [2, -2, 7])
def test_unknown_acks(raw: RawClient, known: RawTopic, acks: int) -> None:
    answer = produce(raw, known, batch([b"x"]), acks=acks)
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert end_of(raw, known) == 0


def test_unknown_topics_and_partitions(raw: RawClient, known: RawTopic) -> None:
    nowhere = RawTopic("no-such-topic", b"\x05" * 16)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(raw, nowhere, batch([b"x"]), 12).error_code == unknown
    assert produce(raw, nowhere, batch([b"x"]), 13).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert produce(raw, known, batch([b"x"]), partition=9).error_code == unknown
    assert produce(raw, known, batch([b"x"]), partition=-1).error_code == unknown


def test_one_bad_partition_does_not_stop_the_others(raw: RawClient, topic: TopicMaker) -> None:
    known = find_topic(raw, topic(partitions=3))
    data = [batch([b"a"]), batch([b"b"], crc=1), batch([b"c"])]
    parts = [PartitionProduceData(index=i, records=records) for i, records in enumerate(data)]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=known.name, partition_data=parts)],
    )
    found = raw.call(request, 9).responses[0].partition_responses
    codes = {p.index: p.error_code for p in found}
    assert codes == {0: 0, 1: CORRUPT, 2: 0}


def test_sequences_survive_a_restart(fresh_node: Any) -> None:
    broker = fresh_node()
    name = make_topic(broker, "numbered")
    with RawClient(broker.host, broker.port) as client:
        known = find_topic(client, name)
        pid = init_producer(client)
        for sequence in range(3):
            assert produce(client, known, numbered(pid, sequence)).base_offset == sequence
    broker.kill()
    broker.start()
    with RawClient(broker.host, broker.port) as client:
        eventually(lambda: end_of(client, known) == 3)
        assert produce(client, known, numbered(pid, 2)).base_offset == 2
        earlier = produce(client, known, numbered(pid, 1))
        # Kafka's snapshot holds only the last batch; to remember more is allowed, to append is not.
        assert (earlier.error_code, earlier.base_offset) in ((0, 1), (45, -1))
        assert produce(client, known, numbered(pid, 3)).base_offset == 3
        gap = produce(client, known, numbered(pid, 7))
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert init_producer(client)[0] != pid[0]
