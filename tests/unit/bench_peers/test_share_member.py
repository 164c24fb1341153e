"""Members of share groups as `bench/peers` has them: what they count, what they refuse to count."""

from __future__ import annotations

import struct

import pytest
from bench.peers.queue_nodes import check_done
from bench.peers.queue_wire import BY_DEFAULT, ONE
from bench.peers.share_member import (
    MAX_RECORDS,
    RECORD_LIMIT,
    VERSION,
    Delivery,
    Place,
    PromptMember,
    ShareMember,
    check_records,
)
from bench.peers.share_queue import check_once
from bench.peers.wire import PeerError
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode
from penstock.cli.bench.requests import batch_of
from penstock.wire.apis import ApiKey, request_header_version
from penstock.wire.messages import share_acknowledge
from penstock.wire.messages.header import RequestHeader, ResponseHeader
from penstock.wire.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from penstock.wire.messages.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

TOPIC = bytes(range(16))
PLACE = Place(TOPIC, 2)
ACKED = [(10, 12, [1]), (20, 20, [1])]


def framed(answer: ShareFetchResponse | ShareAcknowledgeResponse) -> bytes:
    body = bytes(ResponseHeader(correlation_id=0).encode(1)) + bytes(answer.encode(VERSION))
    return struct.pack(">i", len(body)) + body


def records(*batches: tuple[int, int]) -> bytes:
    """Batches by their first offsets and how many messages they have."""
    found = b""
    for base, messages in batches:
        batch = bytearray(batch_of(30, messages))
        struct.pack_into(">q", batch, 0, base)
        found += bytes(batch)
    return found


def given_out(
    *acquired: tuple[int, int], error: int = 0, acks: int = 0, data: bytes | None = None
) -> bytes:
    """An answer to ShareFetch with these ranges of one partition."""
    ranges = [AcquiredRecords(first_offset=a, last_offset=b, delivery_count=1) for a, b in acquired]
    if data is None:
        data = records(*((a, b - a + 1) for a, b in acquired))
    part = PartitionData(
        partition_index=PLACE.partition,
        error_code=error,
        acknowledge_error_code=acks,
        records=data,
        acquired_records=ranges,
    )
    topic = ShareFetchableTopicResponse(topic_id=TOPIC, partitions=[part])
    return framed(ShareFetchResponse(responses=[topic]))


def taken(error: int = 0) -> bytes:
    """An answer to ShareAcknowledge."""
    part = share_acknowledge.PartitionData(partition_index=PLACE.partition, error_code=error)
    topic = share_acknowledge.ShareAcknowledgeTopicResponse(topic_id=TOPIC, partitions=[part])
    return framed(ShareAcknowledgeResponse(responses=[topic]))


def fetch_of(request: bytes | bytearray) -> ShareFetchRequest:
    at = 4
    _, at = RequestHeader.decode_from(
        bytes(request), at, request_header_version(ApiKey.SHARE_FETCH, VERSION)
    )
    return ShareFetchRequest.decode(bytes(request[at:]), VERSION)


def acknowledge_of(request: bytes | bytearray) -> ShareAcknowledgeRequest:
    at = 4
    _, at = RequestHeader.decode_from(
        bytes(request), at, request_header_version(ApiKey.SHARE_ACKNOWLEDGE, VERSION)
    )
    return ShareAcknowledgeRequest.decode(bytes(request[at:]), VERSION)


def acks(request: ShareFetchRequest | ShareAcknowledgeRequest) -> list[tuple[int, int, list[int]]]:
    return [
        (batch.first_offset, batch.last_offset, list(batch.acknowledge_types))
        for topic in request.topics
        for part in topic.partitions
        for batch in part.acknowledgement_batches
    ]


def member(kind: type[ShareMember] = ShareMember) -> ShareMember:
    return kind("group", "member", [PLACE], BY_DEFAULT)


def test_a_member_asks_as_clients_do_by_default() -> None:
    first = fetch_of(member().first)
    assert (first.share_session_epoch, first.max_records, first.batch_size) == (0, 500, 500)
    assert (first.max_wait_ms, first.min_bytes, first.share_acquire_mode) == (500, 1, 0)
    assert [(t.topic_id, [p.partition_index for p in t.partitions]) for t in first.topics] == [
        (TOPIC, [PLACE.partition])
    ]
    assert acks(first) == []
    one = fetch_of(ShareMember("group", "member", [PLACE], ONE).first)
    assert (one.max_records, one.share_acquire_mode) == (1, RECORD_LIMIT)
    assert MAX_RECORDS == 500


@given(st.lists(st.integers(1, 150), max_size=30))
def test_what_came_is_acknowledged_by_the_next_fetch(sizes: list[int]) -> None:
    """Wherever an answer is cut."""
    worker, answer = member(), given_out((10, 12), (20, 20))
    pieces = []
    for size in sizes:
        pieces.append(answer[:size])
        answer = answer[size:]
    found = [worker.received(memoryview(piece)) for piece in [*pieces, answer] if piece]
    assert sum(one.messages for one in found) == 4
    [reply] = [one.reply for one in found if one.reply is not None]
    assert fetch_of(reply).share_session_epoch == 1
    assert acks(fetch_of(reply)) == ACKED
    assert worker.acknowledged == 0
    again = worker.received(memoryview(given_out()))
    assert worker.acknowledged == 4
    assert again.reply is not None
    assert acks(fetch_of(again.reply)) == []


def test_a_member_that_ends_acknowledges_and_closes_its_session() -> None:
    worker = member()
    worker.received(memoryview(given_out((0, 0))))
    assert worker.end() == b""
    closing = worker.received(memoryview(given_out((10, 12), (20, 20)))).reply
    assert closing is not None
    assert acknowledge_of(closing).share_session_epoch == -1
    assert acks(acknowledge_of(closing)) == ACKED
    assert not worker.is_over
    assert worker.received(memoryview(taken())).reply is None
    assert worker.is_over
    assert worker.acknowledged == 5


def test_a_prompt_member_counts_what_was_acknowledged() -> None:
    worker = member(PromptMember)
    found = worker.received(memoryview(given_out((10, 12), (20, 20))))
    assert found.messages == 0
    assert found.reply is not None
    (length,) = struct.unpack_from(">i", found.reply)
    first, second = found.reply[: 4 + length], found.reply[4 + length :]
    assert (acknowledge_of(first).share_session_epoch, acks(acknowledge_of(first))) == (1, ACKED)
    assert (fetch_of(second).share_session_epoch, acks(fetch_of(second))) == (2, [])
    assert worker.received(memoryview(taken())) == (4, None)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (given_out(error=ErrorCode.NOT_LEADER_OR_FOLLOWER), "give out messages: NOT_LEADER"),
        (given_out((0, 0), acks=ErrorCode.INVALID_RECORD_STATE), "INVALID_RECORD_STATE"),
        (framed(ShareFetchResponse(error_code=ErrorCode.SHARE_SESSION_NOT_FOUND)), "NOT_FOUND"),
        (framed(ShareFetchResponse()), "says nothing of what was acknowledged"),
        (given_out((5, 9), data=records((5, 4))), "lacks records"),
        (given_out((5, 9), data=records((6, 9))), "lacks records"),
        (given_out((5, 9), data=records((5, 5))[:-1]), "torn"),
        (given_out((5, 9), data=b""), "lacks records"),
    ],
)
def test_what_a_member_does_not_count(answer: bytes, why: str) -> None:
    worker = member()
    worker.received(memoryview(given_out((0, 0))))
    with pytest.raises(PeerError, match=why):
        worker.received(memoryview(answer))


def test_records_of_several_batches_are_all_there() -> None:
    data = records((0, 5), (5, 5), (12, 3))
    check_records(data, [Delivery(PLACE, 3, 9, 1), Delivery(PLACE, 13, 14, 1)])
    with pytest.raises(PeerError, match="lacks records"):
        check_records(data, [Delivery(PLACE, 8, 12, 1)])


@pytest.mark.parametrize(
    ("delivered", "filled", "why"),
    [
        ([(0, 4, 1), (4, 6, 1)], 10, "two members"),
        ([(0, 4, 1), (5, 6, 2)], 10, "given out 2 times"),
        ([(0, 4, 1), (5, 6, 1)], 6, "7 messages were given out of 6"),
        ([(0, 4, 1), (6, 7, 1)], 7, "not all of the 7"),
    ],
)
def test_what_was_given_out_is_complete_and_was_so_once(
    delivered: list[tuple[int, int, int]], filled: int, why: str
) -> None:
    check_once([Delivery(PLACE, 0, 4, 1), Delivery(PLACE, 5, 6, 1)], 7)
    with pytest.raises(PeerError, match=why):
        check_once([Delivery(PLACE, *one) for one in delivered], filled)


def test_what_was_acknowledged_is_not_given_out_again() -> None:
    before, after = member(), member()
    before.received(memoryview(given_out((0, 4))))
    before.received(memoryview(given_out((5, 9))))
    after.received(memoryview(given_out((5, 9))))
    check_done(2, [before, after])
    before.received(memoryview(given_out()))
    with pytest.raises(PeerError, match="5 messages of partition 2 were acknowledged"):
        check_done(2, [before, after])
