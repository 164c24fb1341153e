"""The hand-tuned codec of Fetch as a follower speaks it: requests written, answers read.

Same bytes as the tables in `messages/fetch.py` say (tests hold the two against each other), but it
builds no message objects: a request is packed in one pass, and an answer becomes nested tuples
whose records are views of the frame. A request is that of a broker (its epoch came with version
15) and names only the partitions that its fetch session does not know as they are; an answer may be
of any version with topic ids. What a follower has no use for is skipped: throttle time, aborted
transactions, preferred read replicas and the endpoints of other leaders. Everything in an answer
that is not plainly well formed raises WireError.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from penstock.base.errors import invariant
from penstock.base.ids import Uuid
from penstock.base.limits import ARRAY_ELEMENTS_MAX, TAGGED_FIELDS_MAX
from penstock.wire.decoders import skip_tags
from penstock.wire.errors import WireError
from penstock.wire.varint import read_unsigned_varint, unsigned_varint

TOPIC_ID_FROM: Final = 13
REPLICA_STATE_FROM: Final = 15


class FetchPosition(NamedTuple):
    """Where a follower stands in one partition, and how much of it it takes; in wire order."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchRequestHead(NamedTuple):
    """What a request says apart from its partitions."""

    replica_id: int
    broker_epoch: int
    session_id: int
    session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int


class FetchedPartition(NamedTuple):
    """What an answer says of one partition; -1 stands for what it does not say."""

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: memoryview | None
    diverging_epoch: int = -1
    diverging_end_offset: int = -1
    leader_id: int = -1
    leader_epoch: int = -1
    snapshot_end_offset: int = -1
    snapshot_epoch: int = -1


FetchedTopics: TypeAlias = list[tuple[Uuid, list[FetchedPartition]]]


class FetchAnswer(NamedTuple):
    error_code: int
    session_id: int
    topics: FetchedTopics


_INT32: Final = struct.Struct(">i")
# Wait, bytes at least and at most, isolation level, session id and epoch.
_REQUEST_HEAD: Final = struct.Struct(">iiibii")
_POSITION: Final = struct.Struct(">iiqiqiB")  # with an empty tag section
# An empty rack; one tagged field of 13 bytes, number 1: replica id, broker epoch, no tags.
_REQUEST_TAIL: Final = struct.Struct(">BBBBiqB")
# An array's length is read as one byte, which is all of it up to 126 elements.
_ANSWER_HEAD: Final = struct.Struct(">ihiB")  # throttle time, error, session id, number of topics
_TOPIC: Final = struct.Struct(">16sB")  # topic id, number of partitions
# Fields, number of aborted transactions, preferred read replica, length of the records. The first
# form is right only while there are no aborted transactions, as a follower is never told any.
_PARTITION: Final = struct.Struct(">ihqqqBiB")
_PARTITION_FIELDS: Final = struct.Struct(">ihqqq")
_ABORTED_BYTES: Final = 16
_PREFERRED_REPLICA_BYTES: Final = 4
# What the elements of the arrays take at least.
_TOPIC_BYTES_MIN: Final = _TOPIC.size + 1
_PARTITION_BYTES_MIN: Final = _PARTITION.size + 1
_ABORTED_BYTES_MIN: Final = _ABORTED_BYTES + 1
_TAGGED = {
    0: (struct.Struct(">iq"), ("diverging_epoch", "diverging_end_offset")),
    1: (struct.Struct(">ii"), ("leader_id", "leader_epoch")),
    2: (struct.Struct(">qi"), ("snapshot_end_offset", "snapshot_epoch")),
}
"""The tagged fields of a partition: how they are laid out, and what they hold."""
_new_tuple: Final = tuple.__new__


def encode_fetch_request(
    version: int,
    head: FetchRequestHead,
    topics: Sequence[tuple[Uuid, Sequence[FetchPosition]]],
    forgotten: Sequence[tuple[Uuid, Sequence[int]]] = (),
) -> bytes:
    """The body of a follower's Fetch request, without the frame's length and header."""
    invariant(version >= REPLICA_STATE_FROM, "a follower asks in Fetch v15 or later")
    replica_id, broker_epoch, session_id, session_epoch, wait_ms, min_bytes, max_bytes = head
    out = bytearray(_REQUEST_HEAD.pack(wait_ms, min_bytes, max_bytes, 0, session_id, session_epoch))
    out += unsigned_varint(len(topics) + 1)
    pack = _POSITION.pack
    for topic_id, positions in topics:
        out += topic_id
        out += unsigned_varint(len(positions) + 1)
        for position in positions:
            out += pack(*position, 0)
        out.append(0)
    out += unsigned_varint(len(forgotten) + 1)
    for topic_id, partitions in forgotten:
        _append_forgotten(out, topic_id, partitions)
    out += _REQUEST_TAIL.pack(1, 1, 1, 13, replica_id, broker_epoch, 0)
    return bytes(out)


def _append_forgotten(out: bytearray, topic_id: Uuid, partitions: Sequence[int]) -> None:
    out += topic_id
    out += unsigned_varint(len(partitions) + 1)
    for partition in partitions:
        out += _INT32.pack(partition)
    out.append(0)


def decode_fetch_response(buf: memoryview, pos: int, version: int) -> FetchAnswer:
    """The body of a Fetch answer, which reaches from `pos` to the end of `buf`."""
    invariant(version >= TOPIC_ID_FROM, "a follower reads Fetch v13 or later")
    try:
        return _decode_answer(buf, pos)
    except (struct.error, IndexError, ValueError) as e:
        raise WireError("FetchResponse", version, str(e)) from None


def _decode_answer(buf: memoryview, pos: int) -> FetchAnswer:
    end = len(buf)
    _, error_code, session_id, count = _ANSWER_HEAD.unpack_from(buf, pos)
    pos += _ANSWER_HEAD.size
    left = ARRAY_ELEMENTS_MAX  # for topics and partitions together
    if not 0 < count < 0x80:
        count, pos = _array_length(buf, pos - 1, _TOPIC_BYTES_MIN, left)
    left -= count
    topics: FetchedTopics = []
    for _ in range(count - 1):
        topic_id, count = _TOPIC.unpack_from(buf, pos)
        pos += _TOPIC.size
        if not 0 < count < 0x80:
            count, pos = _array_length(buf, pos - 1, _PARTITION_BYTES_MIN, left)
        left -= count
        partitions, pos = _decode_partitions(buf, pos, end, count - 1)
        pos = pos + 1 if not buf[pos] else skip_tags(buf, pos, end)
        topics.append((topic_id, partitions))
    pos = pos + 1 if not buf[pos] else skip_tags(buf, pos, end)
    if pos != end:
        raise ValueError(f"{end - pos} bytes are left over after the message")
    return _new_tuple(FetchAnswer, (error_code, session_id, topics))


def _decode_partitions(
    buf: memoryview, pos: int, end: int, count: int
) -> tuple[list[FetchedPartition], int]:
    unpack, bytes_before_records = _PARTITION.unpack_from, _PARTITION.size
    partitions: list[FetchedPartition] = []
    for _ in range(count):
        index, code, watermark, stable, start, aborted, _, size = unpack(buf, pos)
        if aborted > 1:
            pos = _skip_aborted(buf, pos + _PARTITION_FIELDS.size, end)
            size, pos = read_unsigned_varint(buf, pos + _PREFERRED_REPLICA_BYTES)
        else:
            pos += bytes_before_records
            if size > 0x7F:
                size, pos = read_unsigned_varint(buf, pos - 1)
        records = None
        if size:
            stop = pos + size - 1
            if stop > end:
                raise ValueError(f"{size - 1} bytes of records announced at {pos} of {end}")
            records = buf[pos:stop]
            pos = stop
        fields = (index, code, watermark, stable, start, records, -1, -1, -1, -1, -1, -1)
        partition = _new_tuple(FetchedPartition, fields)
        if buf[pos]:
            partition, pos = _decode_partition_tags(buf, pos, end, partition)
        else:
            pos += 1
        partitions.append(partition)
    return partitions, pos


def _decode_partition_tags(
    buf: memoryview, pos: int, end: int, partition: FetchedPartition
) -> tuple[FetchedPartition, int]:
    tags, pos = read_unsigned_varint(buf, pos)
    if tags > TAGGED_FIELDS_MAX:
        raise ValueError(f"{tags} tagged fields are more than the {TAGGED_FIELDS_MAX} allowed")
    for _ in range(tags):
        tag, pos = read_unsigned_varint(buf, pos)
        size, pos = read_unsigned_varint(buf, pos)
        stop = pos + size
        if stop > end:
            raise ValueError(f"a tagged field of {size} bytes announced at {pos} of {end}")
        if tag in _TAGGED:
            layout, names = _TAGGED[tag]
            values = zip(names, layout.unpack_from(buf, pos), strict=True)
            partition = partition._replace(**dict(values))
            if skip_tags(buf, pos + layout.size, end) != stop:
                raise ValueError(f"the tagged field {tag} is not as long as it says")
        pos = stop
    return partition, pos


def _skip_aborted(buf: memoryview, pos: int, end: int) -> int:
    count, pos = _array_length(buf, pos, _ABORTED_BYTES_MIN, ARRAY_ELEMENTS_MAX)
    for _ in range(count - 1):
        pos = skip_tags(buf, pos + _ABORTED_BYTES, end)
    return pos


def _array_length(buf: memoryview, pos: int, size: int, most: int) -> tuple[int, int]:
    """An array's length as it is written, one more than its elements of at least `size` bytes."""
    count, pos = read_unsigned_varint(buf, pos)
    if not 0 < count <= most or (count - 1) * size > len(buf) - pos:
        raise ValueError(f"an array of {count - 1} elements at {pos} of {len(buf)}")
    return count, pos
