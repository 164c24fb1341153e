"""A member of a share group as the load wants it: Penstock and Apache Kafka get the same requests.

A member fetches what it was assigned over one connection, with one ShareFetch under way, which
acknowledges what the one before it brought: the implicit acknowledgement of Java's client, with
that client's defaults. `PromptMember` acknowledges at once and alone, and counts what is
acknowledged. Of an answer the codes, what was acquired and the heads of the batches are looked at;
records are not decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from penstock.base.errors import ErrorCode
from penstock.base.ids import Uuid
from penstock.cli.bench.requests import frame
from penstock.wire.apis import ApiKey
from penstock.wire.messages import share_acknowledge, share_fetch
from penstock.wire.messages.header import ResponseHeader
from penstock.wire.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from penstock.wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from penstock.wire.record_batch import HEADER_SIZE

from .queue_wire import Asking, QueueConsumer
from .wire import PeerError, Received

VERSION = 2
MAX_WAIT_MS = 500
MIN_BYTES = 1
MAX_BYTES = 50 * 1024 * 1024
MAX_RECORDS = 500
BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
ACCEPT = 1
OPENS, CLOSES = 0, -1
"""Epochs of a share session."""
HEADER_VERSION = 1
LENGTH_BYTES = 4
LOG_OVERHEAD_BYTES = 12

_INT32 = struct.Struct(">i")
_BATCH_HEAD = struct.Struct(">qi11xi")  # base offset, length, last offset delta
_R = TypeVar("_R", ShareFetchResponse, ShareAcknowledgeResponse)


class Place(NamedTuple):
    """A partition."""

    topic_id: Uuid
    partition: int


class Delivery(NamedTuple):
    """Neighbouring records that a member was given."""

    place: Place
    first: int
    last: int
    times: int
    """How often they were delivered, this time included."""

    @property
    def records(self) -> int:
        return self.last - self.first + 1


class ShareMember(QueueConsumer):
    """See `QueueConsumer`. `held` is what the next request acknowledges, `asked` what the one under
    way does.
    """

    def __init__(self, group: str, member_id: str, places: Sequence[Place], asking: Asking) -> None:
        self.member_id = member_id
        self.delivered: list[Delivery] = []
        self.acknowledged = 0
        self.is_over = False
        self._group = group
        self._epoch = OPENS
        self._records = 1 if asking.one else MAX_RECORDS
        self._mode = RECORD_LIMIT if asking.one else BATCH_OPTIMIZED
        self._held: list[Delivery] = []
        self._asked: list[Delivery] = []
        self._ends = self._closes = False
        self._arrived = bytearray()
        topics: dict[Uuid, list[int]] = {}
        for topic_id, partition in places:
            topics.setdefault(topic_id, []).append(partition)
        self.first: bytes | bytearray = self._fetch(
            share_fetch.FetchTopic(
                topic_id=topic_id,
                partitions=[share_fetch.FetchPartition(partition_index=p) for p in partitions],
            )
            for topic_id, partitions in topics.items()
        )

    # -- what arrives --------------------------------------------------------------------------

    def received(self, data: memoryview) -> Received:
        self._arrived += data
        answer = self._next()
        if answer is None:
            return Received(0, None)
        if self._closes:
            body = decoded(ShareAcknowledgeResponse, answer)
            self._answered(
                {
                    (t.topic_id, p.partition_index): p.error_code
                    for t in body.responses
                    for p in t.partitions
                }
            )
            self.is_over = True
            return Received(0, None)
        messages = self._fetched(decoded(ShareFetchResponse, answer))
        return Received(messages, self._close() if self._ends else self._fetch(self._acks()))

    def end(self) -> bytes:
        """Its answer to what is under way closes the session."""
        self._ends = True
        return b""

    def _next(self) -> bytes | None:
        """The next whole frame, without its length."""
        arrived = self._arrived
        if len(arrived) < LENGTH_BYTES:
            return None
        end = LENGTH_BYTES + int(_INT32.unpack_from(arrived)[0])
        if len(arrived) < end:
            return None
        found = bytes(memoryview(arrived)[LENGTH_BYTES:end])
        del arrived[:end]
        return found

    def _fetched(self, body: ShareFetchResponse) -> int:
        """What is in an answer to ShareFetch; how many messages."""
        said: dict[tuple[Uuid, int], int] = {}
        messages = 0
        for topic in body.responses:
            for part in topic.partitions:
                place = Place(topic.topic_id, part.partition_index)
                check(part.error_code, "give out messages")
                said[place] = part.acknowledge_error_code
                given = [
                    Delivery(place, r.first_offset, r.last_offset, r.delivery_count)
                    for r in part.acquired_records
                ]
                if given:
                    check_records(part.records or b"", given)
                    self._held += given
                    messages += sum(delivery.records for delivery in given)
        self._answered(said)
        self.delivered += self._held
        return messages

    def _answered(self, said: dict[tuple[Uuid, int], int]) -> None:
        """What became of the acknowledgements of the request that was under way."""
        for delivery in self._asked:
            code = said.get(delivery.place)
            if code is None:
                raise PeerError(f"the broker says nothing of what was acknowledged: {delivery}")
            check(code, "take an acknowledgement")
            self.acknowledged += delivery.records
        self._asked = []

    # -- what is sent --------------------------------------------------------------------------

    def _acks(self) -> Iterable[share_fetch.FetchTopic]:
        """Acknowledgements of all that is held, as a ShareFetch has them."""
        for topic_id, partitions in self._by_place().items():
            yield share_fetch.FetchTopic(
                topic_id=topic_id,
                partitions=[
                    share_fetch.FetchPartition(
                        partition_index=partition,
                        acknowledgement_batches=[
                            share_fetch.AcknowledgementBatch(
                                first_offset=d.first, last_offset=d.last, acknowledge_types=[ACCEPT]
                            )
                            for d in deliveries
                        ],
                    )
                    for partition, deliveries in partitions.items()
                ],
            )
        self._asked, self._held = self._held, []

    def _by_place(self) -> dict[Uuid, dict[int, list[Delivery]]]:
        found: dict[Uuid, dict[int, list[Delivery]]] = {}
        for delivery in self._held:
            topic_id, partition = delivery.place
            found.setdefault(topic_id, {}).setdefault(partition, []).append(delivery)
        return found

    def _fetch(self, topics: Iterable[share_fetch.FetchTopic]) -> bytearray:
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self.member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=MIN_BYTES,
            max_bytes=MAX_BYTES,
            max_records=self._records,
            batch_size=self._records,
            share_acquire_mode=self._mode,
            topics=list(topics),
        )
        self._epoch += 1
        return frame(ApiKey.SHARE_FETCH, request, VERSION)

    def _acknowledge(self, epoch: int) -> bytearray:
        """Acknowledges all that is held by a request of its own."""
        topics = [
            share_acknowledge.AcknowledgeTopic(
                topic_id=topic.topic_id,
                partitions=[
                    share_acknowledge.AcknowledgePartition(
                        partition_index=part.partition_index,
                        acknowledgement_batches=[
                            share_acknowledge.AcknowledgementBatch(
                                first_offset=batch.first_offset,
                                last_offset=batch.last_offset,
                                acknowledge_types=batch.acknowledge_types,
                            )
                            for batch in part.acknowledgement_batches
                        ],
                    )
                    for part in topic.partitions
                ],
            )
            for topic in self._acks()
        ]
        request = ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self.member_id,
            share_session_epoch=epoch,
            topics=topics,
        )
        return frame(ApiKey.SHARE_ACKNOWLEDGE, request, VERSION)

    def _close(self) -> bytearray:
        self._closes = True
        return self._acknowledge(CLOSES)


class PromptMember(ShareMember):
    """Acknowledges what it is given at once, by a ShareAcknowledge with the next ShareFetch behind
    it. The messages that it counts are those whose acknowledgement was answered.
    """

    def received(self, data: memoryview) -> Received:
        self._arrived += data
        done, reply = self.acknowledged, bytearray()
        while (answer := self._next()) is not None:
            if self._asked:
                body = decoded(ShareAcknowledgeResponse, answer)
                self._answered(
                    {
                        (t.topic_id, p.partition_index): p.error_code
                        for t in body.responses
                        for p in t.partitions
                    }
                )
            else:
                if self._fetched(decoded(ShareFetchResponse, answer)):
                    reply += self._acknowledge(self._epoch)
                    self._epoch += 1
                reply += self._fetch(())
        return Received(self.acknowledged - done, reply or None)


def decoded(kind: type[_R], answer: bytes) -> _R:
    """A whole answer, which is none that refuses all of the request."""
    data = memoryview(answer)
    _, at = ResponseHeader.decode_from(data, 0, HEADER_VERSION)
    body, _ = kind.decode_from(data, at, VERSION)
    check(body.error_code, "serve a member of a share group")
    return body


def check(code: int, what: str) -> None:
    if code:
        raise PeerError(f"the broker refused to {what}: {ErrorCode(code).name}")


def check_records(records: bytes | memoryview, given: Sequence[Delivery]) -> None:
    """The batches have every record that was given."""
    at, batches = 0, []
    while len(records) - at >= HEADER_SIZE:
        base, length, delta = _BATCH_HEAD.unpack_from(records, at)
        at += LOG_OVERHEAD_BYTES + length
        batches.append((base, base + delta))
    if at != len(records):
        raise PeerError(f"the records of an answer are torn: {len(records)} bytes, not {at}")
    whole = iter(batches)
    base, last = next(whole, (0, -1))
    for delivery in given:
        due = delivery.first
        while due <= delivery.last:
            while last < due:
                base, last = next(whole, (0, -1))
                if last < 0:
                    raise PeerError(f"an answer lacks records that were given: {delivery}")
            if base > due:
                raise PeerError(f"an answer lacks records that were given: {delivery}")
            due = last + 1
