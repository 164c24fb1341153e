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
from penstock.base.results import LeaderEndpoint, PartitionData, Records, TopicData
from penstock.wire.varint import unsigned_varint

FLEXIBLE_FROM: Final = 12
SESSIONS_FROM: Final = 7
LOG_START_FROM: Final = 5
PREFERRED_REPLICA_FROM: Final = 11
ENDPOINTS_FROM: Final = 16

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_FRAME: Final = struct.Struct(">ii")
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
) -> list[Records]:
    """The whole frame, length and header included, of a Fetch answer (no throttling).

    `endpoints` are those of the leaders that the partitions name.
    """
    parts: list[Records] = []
    head = bytearray(8)
    flexible = version >= FLEXIBLE_FROM
    if flexible:
        head.append(0)  # no tagged fields in the header
    if version >= SESSIONS_FROM:
        head += _SESSION.pack(0, error_code, session_id)
    else:
        head += _INT32.pack(0)
    head += unsigned_varint(len(topics) + 1) if flexible else _INT32.pack(len(topics))
    size = 0
    for topic, partitions in topics:
        _append_topic(head, topic, len(partitions), flexible)
        for p in partitions:
            _append_partition(head, version, flexible, p)
            if p.records:
                size += len(head) + len(p.records)
                parts += (head, p.records)
                head = bytearray()
            if flexible:
                _append_partition_tags(head, p)
        if flexible:
            head.append(0)
    if flexible:
        head += _endpoints_tag(endpoints) if endpoints and version >= ENDPOINTS_FROM else b"\x00"
    if head:
        size += len(head)
        parts.append(head)
    first = parts[0]
    assert isinstance(first, bytearray)
    _FRAME.pack_into(first, 0, size - 4, correlation_id)
    return parts


def _append_topic(head: bytearray, topic: TopicKey, partition_count: int, flexible: bool) -> None:
    if isinstance(topic, bytes):
        head += topic
    else:
        name = topic.encode()
        head += unsigned_varint(len(name) + 1) if flexible else _INT16.pack(len(name))
        head += name
    head += unsigned_varint(partition_count + 1) if flexible else _INT32.pack(partition_count)


def _append_partition(head: bytearray, version: int, flexible: bool, p: PartitionData) -> None:
    partition, code, watermark, stable, start = p[:5]
    if version >= LOG_START_FROM:
        head += _PARTITION_V5.pack(partition, code, watermark, stable, start)
    else:
        head += _PARTITION_V4.pack(partition, code, watermark, stable)
    aborted = p.aborted_transactions
    if aborted is None:
        head += b"\x00" if flexible else b"\xff\xff\xff\xff"
    else:
        head += unsigned_varint(len(aborted) + 1) if flexible else _INT32.pack(len(aborted))
        for producer_id, first_offset in aborted:
            head += _ABORTED.pack(producer_id, first_offset)
            if flexible:
                head.append(0)
    if version >= PREFERRED_REPLICA_FROM:
        head += _INT32.pack(p.preferred_read_replica)
    n = len(p.records)
    head += unsigned_varint(n + 1) if flexible else _INT32.pack(n)


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
