"""What a consumer may ask: limits, long polls, fetch sessions, and errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.wire.messages.fetch import FetchRequest
from support.batches import Rec, batch, heads
from support.calls import RawTopic, fetch, fetch_request, find_topic, list_offset, produce
from support.helpers import TopicMaker, admin
from support.process import BrokerProcess
from support.raw import RawClient

V = 16  # librdkafka's
NEWEST = 18  # Java's
FINAL_EPOCH = -1
LONG_MS = 25_000
PROMPT_SECONDS_MAX = 10.0  # far below LONG_MS, far above what a busy machine takes


@pytest.fixture
def raw(node: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(node.host, node.port) as client:
        yield client


@pytest.fixture
def known(raw: RawClient, topic: TopicMaker) -> RawTopic:
    return find_topic(raw, topic())


def fill(raw: RawClient, known: RawTopic, count: int, size: int, partition: int = 0) -> None:
    """`count` batches of one record each."""
    for _ in range(count):
        assert produce(raw, known, batch([b"x" * size]), partition=partition).error_code == 0


# Limits


def test_the_first_batch_comes_whole_however_small_the_limit(
    raw: RawClient, known: RawTopic
) -> None:
    fill(raw, known, 3, 10_000)
    for limits in ({"partition_max_bytes": 1}, {"max_bytes": 1}, {"partition_max_bytes": 10_500}):
        answer = fetch(raw, known, 1, V, **limits)
        assert [head.base_offset for head in heads(answer.records)] == [1]


def test_the_partition_limit(raw: RawClient, known: RawTopic) -> None:
    fill(raw, known, 10, 1000)
    size = len(fetch(raw, known, 0, V).records)
    assert len(heads(fetch(raw, known, 0, V).records)) == 10
    answer = fetch(raw, known, 0, V, partition_max_bytes=size // 2)
    assert len(answer.records) <= size // 2
    assert 4 <= len(heads(answer.records)) <= 5
    assert answer.high_watermark == 10


def test_the_response_limit_spans_partitions(raw: RawClient, topic: TopicMaker) -> None:
    known = find_topic(raw, topic(partitions=4))
    for partition in range(4):
        fill(raw, known, 4, 1000, partition)
    offsets = dict.fromkeys(range(4), 0)
    answer = raw.call(fetch_request([(known, offsets)], V, max_bytes=6000), V)
    sizes = [len(p.records or b"") for p in answer.responses[0].partitions]
    assert len(sizes) == 4
    assert 0 < sum(sizes) <= 6000
    answer = raw.call(fetch_request([(known, offsets)], V, max_bytes=1), V)
    full = [p for p in answer.responses[0].partitions if p.records]
    assert len(full) == 1, "one partition makes progress, the others wait their turn"
    assert len(heads(full[0].records)) == 1


def test_reading_starts_with_the_batch_that_holds_the_offset(
    raw: RawClient, known: RawTopic
) -> None:
    for _ in range(3):
        produce(raw, known, batch([b"a", b"b", b"c"]))
    answer = fetch(raw, known, 4, V, partition_max_bytes=1)
    [head] = heads(answer.records)
    assert (head.base_offset, head.last_offset) == (3, 5)


def test_batches_are_patched_only_outside_their_checksum(raw: RawClient, known: RawTopic) -> None:
    sent = batch([b"a", b"b"], partition_leader_epoch=55)
    produce(raw, known, batch([b"first"]))
    assert produce(raw, known, sent).error_code == 0
    got = bytes(fetch(raw, known, 1, V).records)
    [head] = heads(got)
    assert (head.base_offset, head.partition_leader_epoch) == (1, 0)
    assert got[16:] == sent[16:]


# Long polls


def timed(raw: RawClient, request: FetchRequest) -> tuple[float, Any]:
    started = time.monotonic()
    answer = raw.call(request, V)
    return time.monotonic() - started, answer


def test_an_empty_fetch_waits_for_max_wait(raw: RawClient, known: RawTopic) -> None:
    took, answer = timed(raw, fetch_request([(known, {0: 0})], V, max_wait_ms=400))
    assert 0.38 <= took < PROMPT_SECONDS_MAX
    assert not answer.responses[0].partitions[0].records
    took = min(timed(raw, fetch_request([(known, {0: 0})], V, max_wait_ms=0))[0] for _ in range(10))
    assert took < 0.3


def test_min_bytes_of_zero_does_not_wait(raw: RawClient, known: RawTopic) -> None:
    took, _ = timed(raw, fetch_request([(known, {0: 0})], V, max_wait_ms=LONG_MS, min_bytes=0))
    assert took < PROMPT_SECONDS_MAX


def test_enough_bytes_do_not_wait(raw: RawClient, known: RawTopic) -> None:
    fill(raw, known, 1, 1000)
    took, answer = timed(
        raw, fetch_request([(known, {0: 0})], V, max_wait_ms=LONG_MS, min_bytes=900)
    )
    assert took < PROMPT_SECONDS_MAX
    assert answer.responses[0].partitions[0].records
    took, answer = timed(raw, fetch_request([(known, {0: 0})], V, max_wait_ms=400, min_bytes=9000))
    assert 0.38 <= took < PROMPT_SECONDS_MAX
    assert answer.responses[0].partitions[0].records, "too few bytes come when the time is over"


def test_an_error_does_not_wait(raw: RawClient, known: RawTopic) -> None:
    took, answer = timed(raw, fetch_request([(known, {0: 99})], V, max_wait_ms=LONG_MS))
    assert took < PROMPT_SECONDS_MAX
    assert answer.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_waiting_fetch_is_woken_by_enough_bytes(
    node: BrokerProcess, raw: RawClient, known: RawTopic
) -> None:
    gone_by: list[float] = []

    def feed() -> None:
        with RawClient(node.host, node.port) as other:
            for _ in range(4):
                time.sleep(0.1)
                fill(other, known, 1, 1000)
            gone_by.append(time.monotonic())

    feeder = threading.Thread(target=feed)
    feeder.start()
    _, answer = timed(raw, fetch_request([(known, {0: 0})], V, max_wait_ms=LONG_MS, min_bytes=3500))
    woken = time.monotonic()
    feeder.join()
    assert len(heads(answer.responses[0].partitions[0].records)) == 4
    assert woken - gone_by[0] < PROMPT_SECONDS_MAX


# Sessions


def opened(raw: RawClient, topics: list[tuple[RawTopic, dict[int, int]]], version: int) -> int:
    """Opens a session and returns its id."""
    answer = raw.call(fetch_request(topics, version, session_id=0, session_epoch=0), version)
    assert answer.error_code == 0
    assert answer.session_id != 0
    return int(answer.session_id)


def listed(answer: Any) -> list[int]:
    return sorted(p.partition_index for t in answer.responses for p in t.partitions)


@pytest.mark.parametrize("version", [7, 12, V, NEWEST])
def test_an_incremental_fetch_names_only_what_changed(
    raw: RawClient, topic: TopicMaker, version: int
) -> None:
    known = find_topic(raw, topic(partitions=3))
    session = opened(raw, [(known, dict.fromkeys(range(3), 0))], version)

    def ask(epoch: int, topics: Any = (), **fields: Any) -> Any:
        request = fetch_request(
            list(topics), version, session_id=session, session_epoch=epoch, **fields
        )
        answer = raw.call(request, version)
        assert (answer.error_code, answer.session_id) == (0, session)
        return answer

    assert listed(ask(1)) == []
    fill(raw, known, 1, 10, partition=1)
    answer = ask(2)
    assert listed(answer) == [1]
    assert answer.responses[0].partitions[0].high_watermark == 1
    assert listed(ask(3)) == [1], "the position was not moved, so the records come again"
    assert listed(ask(4, [(known, {1: 1})])) == []
    fill(raw, known, 1, 10, partition=0)
    fill(raw, known, 1, 10, partition=1)
    assert listed(ask(5, [(known, {1: 1})], forgotten=[(known, [0])])) == [1]
    assert listed(ask(6, [(known, {0: 0, 1: 2})])) == [0]


def test_a_full_fetch_lists_everything_and_a_final_one_closes(
    raw: RawClient, topic: TopicMaker
) -> None:
    known = find_topic(raw, topic(partitions=2))
    topics = [(known, {0: 0, 1: 0})]
    session = opened(raw, topics, V)
    closing = fetch_request(topics, V, session_id=session, session_epoch=FINAL_EPOCH)
    answer = raw.call(closing, V)
    assert (answer.error_code, answer.session_id) == (0, 0)
    assert listed(answer) == [0, 1]
    gone = raw.call(fetch_request([], V, session_id=session, session_epoch=1), V)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_without_a_session_everything_is_listed(raw: RawClient, known: RawTopic) -> None:
    for _ in range(2):
        answer = raw.call(fetch_request([(known, {0: 0})], V, session_epoch=FINAL_EPOCH), V)
        assert answer.session_id == 0
        assert listed(answer) == [0]


def test_wrong_session_ids_and_epochs(raw: RawClient, known: RawTopic) -> None:
    session = opened(raw, [(known, {0: 0})], V)
    for number, epoch, code in (
        (session, 5, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (session, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (session ^ 0x5555, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (session, 1, ErrorCode.NONE),
        (session, 1, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (session, 2, ErrorCode.NONE),
    ):
        answer = raw.call(fetch_request([], V, session_id=number, session_epoch=epoch), V)
        assert answer.error_code == code, (number == session, epoch)
        assert answer.responses == []


def test_a_new_session_replaces_the_old_one(raw: RawClient, known: RawTopic) -> None:
    session = opened(raw, [(known, {0: 0})], V)
    request = fetch_request([(known, {0: 0})], V, session_id=session, session_epoch=0)
    answer = raw.call(request, V)
    assert answer.error_code == 0
    assert answer.session_id not in (0, session)
    old = raw.call(fetch_request([], V, session_id=session, session_epoch=1), V)
    assert old.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_error_stays_in_the_session_until_it_is_gone(raw: RawClient, known: RawTopic) -> None:
    session = opened(raw, [(known, {0: 5})], V)
    for epoch in (1, 2):
        request = fetch_request([], V, session_id=session, session_epoch=epoch, max_wait_ms=200)
        [found] = raw.call(request, V).responses[0].partitions
        assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# Errors


def test_offsets_out_of_range(raw: RawClient, known: RawTopic) -> None:
    fill(raw, known, 2, 10)
    for offset, code in (
        (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, 0),
        (2, 0),
        (3, ErrorCode.OFFSET_OUT_OF_RANGE),
    ):
        answer = fetch(raw, known, offset, V)
        assert answer.error_code == code
        if code:
            assert (answer.high_watermark, answer.last_stable_offset) == (-1, -1)
            assert not answer.records


def test_unknown_topics_and_partitions(raw: RawClient, known: RawTopic) -> None:
    nowhere = RawTopic("no-such-topic", b"\x05" * 16)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch(raw, nowhere, 0, 12).error_code == unknown
    assert fetch(raw, nowhere, 0, V).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert fetch(raw, known, 0, V, partition=7).error_code == unknown
    assert list_offset(raw, nowhere, -1).error_code == unknown
    assert list_offset(raw, known, -1, partition=7).error_code == unknown


def test_leader_epochs(raw: RawClient, known: RawTopic) -> None:
    ahead = ErrorCode.UNKNOWN_LEADER_EPOCH
    assert fetch(raw, known, 0, V, current_leader_epoch=0).error_code == 0
    assert fetch(raw, known, 0, V, current_leader_epoch=4).error_code == ahead
    assert list_offset(raw, known, -1, current_leader_epoch=0).error_code == 0
    assert list_offset(raw, known, -1, current_leader_epoch=4).error_code == ahead


@pytest.mark.penstock_only  # Kafka may name a record that was deleted
def test_max_timestamp_of_what_is_left(raw: RawClient, known: RawTopic) -> None:
    stamps = (5_000, 9_000, 7_000, 8_000)
    for stamp in stamps:
        produce(raw, known, batch([Rec(timestamp=stamp)]))
    partition = DeleteRecordsPartition(partition_index=0, offset=2)
    topics = [DeleteRecordsTopic(name=known.name, partitions=[partition])]
    raw.call(DeleteRecordsRequest(topics=topics, timeout_ms=9000), 2)
    found = list_offset(raw, known, -3)
    assert (found.offset, found.timestamp) == (3, 8_000)


def test_read_committed(raw: RawClient, known: RawTopic) -> None:
    fill(raw, known, 2, 10)
    answer = fetch(raw, known, 0, V, isolation_level=1)
    assert (answer.error_code, answer.last_stable_offset) == (0, 2)
    assert len(heads(answer.records)) == 2
    assert answer.aborted_transactions == []
    assert list_offset(raw, known, -1, isolation_level=1).offset == 2


def test_a_deleted_topic_ends_a_waiting_fetch(
    node: BrokerProcess, raw: RawClient, known: RawTopic
) -> None:
    timer = threading.Timer(0.3, lambda: admin(node).delete_topics([known.name]))
    timer.start()
    took, answer = timed(raw, fetch_request([(known, {0: 0})], V, max_wait_ms=8000))
    timer.join()
    assert took < 9
    [found] = answer.responses[0].partitions
    assert not found.records
