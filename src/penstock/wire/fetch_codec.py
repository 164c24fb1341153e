"""The hand-tuned encoder of the Fetch answer, which carries records without copying them.

Same bytes as the tables in `messages/fetch.py` say (tests hold the two against each other). The
answer is a list: small pieces of protocol between the records, either as bytes or as regions of
files.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from penstock.base.ids import TopicKey
from penstock.base.results import (
    AbortedTransaction,
    LeaderEndpoint,
    PartitionData,
    Records,
    TopicData,
)
from penstock.base.steps import Steps
from penstock.wire.varint import unsigned_varint

FLEXIBLE_FROM: Final = 12
SESSIONS_FROM: Final = 7
LOG_START_FROM: Final = 5
PREFERRED_REPLICA_FROM: Final = 11
ENDPOINTS_FROM: Final = 16
PARTITIONS_PER_STEP: Final = 64
"""Partitions that are encoded before others may run."""

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_FRAME: Final = struct.Struct(">ii")
_FLEXIBLE_HEAD: Final = struct.Struct(">iibihi")  # with no tagged fields in the header
_PARTITION_V4: Final = struct.Struct(">ihqq")
_PARTITION_V5: Final = struct.Struct(">ihqqq")
_ABORTED: Final = struct.Struct(">qq")
_SESSION: Final = struct.Struct(">ihi")
_EPOCH_END: Final = struct.Struct(">iq")
_LEADER: Final = struct.Struct(">ii")


def encode_fetch_response(
    correlation_id: int,
    version: int,
    error_code: int,
    session_id: int,
    topics: TopicData,
    endpoints: Sequence[LeaderEndpoint] = (),
    throttle_ms: int = 0,
) -> list[Records]:
    """The whole frame, length and header included, of a Fetch answer.

    `endpoints` are those of the leaders that the partitions name.
    """
    parts: list[Records] = []
    flexible = version >= FLEXIBLE_FROM
    head = _begun(version, error_code, session_id, len(topics), throttle_ms)
    for topic, partitions in topics:
        _append_topic(head, topic, len(partitions), flexible)
        head = _append_partitions(parts, head, version, flexible, partitions)
        if flexible:
            head.append(0)
    return _framed(parts, head, correlation_id, version, endpoints)


def encode_in_steps(
    correlation_id: int,
    version: int,
    session_id: int,
    topics: TopicData,
    endpoints: Sequence[LeaderEndpoint] = (),
) -> Steps[list[Records]]:
    """The same for an answer with very many partitions: it stops now and then, for others to run.
    Nobody may change it meanwhile. Its client need not wait afterwards.
    """
    parts: list[Records] = []
    flexible = version >= FLEXIBLE_FROM
    head = _begun(version, 0, session_id, len(topics))
    for topic, partitions in topics:
        _append_topic(head, topic, len(partitions), flexible)
        for at in range(0, len(partitions), PARTITIONS_PER_STEP):
            some = partitions[at : at + PARTITIONS_PER_STEP]
            head = _append_partitions(parts, head, version, flexible, some)
            yield
        if flexible:
            head.append(0)
    return _framed(parts, head, correlation_id, version, endpoints)


def _begun(
    version: int, error_code: int, session_id: int, topic_count: int, throttle_ms: int = 0
) -> bytearray:
    """The answer up to its first topic, with room for length and correlation id."""
    if version >= FLEXIBLE_FROM:
        head = bytearray(_FLEXIBLE_HEAD.pack(0, 0, 0, throttle_ms, error_code, session_id))
        head += unsigned_varint(topic_count + 1)
        return head
    head = bytearray(_FRAME.size)
    if version >= SESSIONS_FROM:
        head += _SESSION.pack(throttle_ms, error_code, session_id)
    else:
        head += _INT32.pack(throttle_ms)
    head += _INT32.pack(topic_count)
    return head


def _framed(
    parts: list[Records],
    head: bytearray,
    correlation_id: int,
    version: int,
    endpoints: Sequence[LeaderEndpoint],
) -> list[Records]:
    """The answer, whose last topic ends `head`."""
    if version >= FLEXIBLE_FROM:
        head += _endpoints_tag(endpoints) if endpoints and version >= ENDPOINTS_FROM else b"\x00"
    if head:
        parts.append(head)
    first = parts[0]
    assert isinstance(first, bytearray)
    _FRAME.pack_into(first, 0, sum(map(len, parts)) - 4, correlation_id)
    return parts


def _append_topic(head: bytearray, topic: TopicKey, partition_count: int, flexible: bool) -> None:
    if isinstance(topic, bytes):
        head += topic
    else:
        name = topic.encode()
        head += unsigned_varint(len(name) + 1) if flexible else _INT16.pack(len(name))
        head += name
    head += unsigned_varint(partition_count + 1) if flexible else _INT32.pack(partition_count)


def _append_partitions(
    parts: list[Records],
    head: bytearray,
    version: int,
    flexible: bool,
    partitions: list[PartitionData],
) -> bytearray:
    """What follows `head`. At records, `head` goes to `parts` and they behind it; returns the head
    of what comes after. One function for all that every partition has: calls are dear here.
    """
    for p in partitions:
        partition, code, watermark, stable, start, aborted, records = p[:7]
        if version >= LOG_START_FROM:
            head += _PARTITION_V5.pack(partition, code, watermark, stable, start)
        else:
            head += _PARTITION_V4.pack(partition, code, watermark, stable)
        if aborted is None:
            head += b"\x00" if flexible else b"\xff\xff\xff\xff"
        else:
            _append_aborted(head, flexible, aborted)
        if version >= PREFERRED_REPLICA_FROM:
            head += _INT32.pack(p.preferred_read_replica)
        size = len(records)
        head += unsigned_varint(size + 1) if flexible else _INT32.pack(size)
        if size:
            parts += (head, records)
            head = bytearray()
        if flexible:
            if p.diverging_end_offset < 0 and p.diverging_epoch < 0 and p.leader_id < 0:
                head.append(0)  # almost always
            else:
                _append_partition_tags(head, p)
    return head


def _append_aborted(head: bytearray, flexible: bool, aborted: Sequence[AbortedTransaction]) -> None:
    head += unsigned_varint(len(aborted) + 1) if flexible else _INT32.pack(len(aborted))
    for producer_id, first_offset in aborted:
        head += _ABORTED.pack(producer_id, first_offset)
        if flexible:
            head.append(0)


def _append_partition_tags(head: bytearray, p: PartitionData) -> None:
    tags = bytearray()
    count = 0
    if p.diverging_epoch >= 0 or p.diverging_end_offset >= 0:
        count += 1
        tags += b"\x00\x0d" + _EPOCH_END.pack(p.diverging_epoch, p.diverging_end_offset) + b"\x00"
    if p.leader_id >= 0:
        count += 1
        tags += b"\x01\x09" + _LEADER.pack(p.leader_id, p.leader_epoch) + b"\x00"
    head.append(count)
    head += tags


def _endpoints_tag(endpoints: Sequence[LeaderEndpoint]) -> bytes:
    """The tagged fields of the answer: its node endpoints."""
    body = bytearray(unsigned_varint(len(endpoints) + 1))
    for node_id, host, port, rack in endpoints:
        body += _INT32.pack(node_id)
        body += _compact(host)
        body += _INT32.pack(port)
        body += b"\x00" if rack is None else _compact(rack)
        body.append(0)
    return b"\x01\x00" + unsigned_varint(len(body)) + bytes(body)


def _compact(text: str) -> bytes:
    data = text.encode()
    return unsigned_varint(len(data) + 1) + data
