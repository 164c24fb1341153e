"""The hand-tuned codec of Produce, the request that comes most often.

Same bytes as the tables in `messages/produce.py` say (tests hold the two against each other), but
it builds no message objects: a request becomes nested tuples whose records are views of the
frame, and an answer is packed in one pass. Everything that is not plainly well formed raises
WireError.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.base.ids import ZERO_UUID, TopicKey
from penstock.base.limits import ARRAY_ELEMENTS_MAX
from penstock.base.results import LeaderEndpoint, PartitionAnswer, TopicAnswers
from penstock.wire.decoders import skip_tags
from penstock.wire.errors import WireError
from penstock.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock.wire.varint import read_unsigned_varint, unsigned_varint

FLEXIBLE_FROM: Final = 9
LEADER_FROM: Final = 10
TOPIC_ID_FROM: Final = 13


class ProduceBody(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[TopicKey, list[tuple[int, memoryview | None]]]]


_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_ACKS_TIMEOUT_BYTE: Final = struct.Struct(">hiB")
_INDEX_BYTE: Final = struct.Struct(">iB")
# Transactional id (null), acks, timeout, number of topics, then a name's length or an id.
_SINGLE_BY_NAME: Final = struct.Struct(">BhiBB")
_SINGLE_BY_ID: Final = struct.Struct(">BhiB16s")
_SINGLE_BYTES_MIN: Final = _SINGLE_BY_ID.size + 6
_NO_TAGS_THRICE: Final = memoryview(b"\x00\x00\x00")  # of the partition, the topic and the request
_SINGLE_PARTITION: Final = struct.Struct(
    ">BiB"
)  # number of partitions, index, length of the records
_ACKS_TIMEOUT_COUNT: Final = struct.Struct(">hii")
_INDEX_SIZE: Final = struct.Struct(">ii")
_PARTITION_V3: Final = struct.Struct(">ihqq")
_PARTITION_V5: Final = struct.Struct(">ihqqq")
# From version 8 on: no record errors, no message; in flexible versions also no tagged fields.
_PARTITION_V8_OK: Final = struct.Struct(">ihqqqih")
_PARTITION_V9_OK: Final = struct.Struct(">ihqqqBBB")
_FRAME: Final = struct.Struct(">ii")
# One appended partition: length, correlation id, header tags, topics | the topic | partitions, the
# partition's fields, its record errors, message and tags, the topic's tags, throttle time, tags.
_ONE_HEAD: Final = struct.Struct(">iiBB")
_ONE_TAIL: Final = struct.Struct(">BihqqqBBBBiB")
_ONE_BYTES: Final = _ONE_HEAD.size - 4 + _ONE_TAIL.size
_new_tuple: Final = tuple.__new__


def decode_produce_request(frame: memoryview, position: int, version: int) -> ProduceBody:
    """The body of a Produce request (versions 3 to 13) that starts at `position` of `frame`."""
    try:
        if version < FLEXIBLE_FROM:
            return _decode_classic(frame, position)
        single = _decode_single(frame, position, version)
        return single if single is not None else _decode_flexible(frame, position, version)
    except (struct.error, IndexError, ValueError) as e:
        raise WireError("ProduceRequest", version, str(e)) from None


def _decode_classic(frame: memoryview, position: int) -> ProduceBody:
    transactional_id, position = _nullable_string(frame, position)
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT.unpack_from(frame, position)
    position += 10
    left = ARRAY_ELEMENTS_MAX  # for all arrays of the request together
    _check_count(topic_count, frame, position, left)
    left -= topic_count
    topics: list[tuple[TopicKey, list[tuple[int, memoryview | None]]]] = []
    for _ in range(topic_count):
        name, position = _nullable_string(frame, position)
        if name is None:
            raise ValueError("a topic without a name")
        (partition_count,) = _INT32.unpack_from(frame, position)
        position += 4
        _check_count(partition_count, frame, position, left)
        left -= partition_count
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(partition_count):
            index, size = _INDEX_SIZE.unpack_from(frame, position)
            position += 8
            records = None
            if size >= 0:
                records = _slice(frame, position, size)
                position += size
            partitions.append((index, records))
        topics.append((name, partitions))
    return ProduceBody(transactional_id, acks, timeout_ms, topics)


def _decode_single(frame: memoryview, position: int, version: int) -> ProduceBody | None:
    """The most frequent request of all, in as few steps as can be: no transaction, one topic, one
    partition, no tagged fields. None when it is anything else.
    """
    if len(frame) - position < _SINGLE_BYTES_MIN:
        return None
    name_size = 0
    if version >= TOPIC_ID_FROM:
        transactional, acks, timeout_ms, topics, topic = _SINGLE_BY_ID.unpack_from(frame, position)
        position += _SINGLE_BY_ID.size
    else:
        transactional, acks, timeout_ms, topics, name_size = _SINGLE_BY_NAME.unpack_from(
            frame, position
        )
        position += _SINGLE_BY_NAME.size + name_size - 1
        if not 0 < name_size < 0x80 or position + _SINGLE_PARTITION.size > len(frame):
            return None
    partitions, index, size = _SINGLE_PARTITION.unpack_from(frame, position)
    if transactional or topics != 2 or partitions != 2:
        return None
    if name_size:
        topic = str(frame[position - name_size + 1 : position], "utf-8")
    position += _SINGLE_PARTITION.size
    if size > 0x7F:
        size, position = read_unsigned_varint(frame, position - 1)
    stop = position + size - 1
    if not size or frame[stop:] != _NO_TAGS_THRICE:
        return None
    return _new_tuple(
        ProduceBody, (None, acks, timeout_ms, [(topic, [(index, frame[position:stop])])])
    )


def _decode_flexible(frame: memoryview, position: int, version: int) -> ProduceBody:
    end = len(frame)
    transactional_id = None
    if frame[position]:
        transactional_id, position = _compact_string(frame, position, nullable=True)
    else:
        position += 1
    acks, timeout_ms, count = _ACKS_TIMEOUT_BYTE.unpack_from(frame, position)
    position += 7
    left = ARRAY_ELEMENTS_MAX  # for all arrays of the request together
    if count != 2:
        count, position = _compact_count(frame, position - 1, left)
        left -= count
    topics: list[tuple[TopicKey, list[tuple[int, memoryview | None]]]] = []
    for _ in range(count - 1):
        topic: TopicKey
        if version >= TOPIC_ID_FROM:
            topic = bytes(frame[position : position + 16])
            position += 16
        else:
            name, position = _compact_string(frame, position)
            assert name is not None
            topic = name
        count = frame[position]
        position += 1
        if count != 2:
            count, position = _compact_count(frame, position - 1, left)
            left -= count
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(count - 1):
            index, size = _INDEX_BYTE.unpack_from(frame, position)
            position += 5
            if size > 0x7F:
                size, position = read_unsigned_varint(frame, position - 1)
            records = None
            if size:
                stop = position + size - 1
                if stop > end:
                    raise ValueError(f"{size - 1} bytes announced at {position} of {end}")
                records = frame[position:stop]
                position = stop
            position = position + 1 if not frame[position] else skip_tags(frame, position, end)
            partitions.append((index, records))
        position = position + 1 if not frame[position] else skip_tags(frame, position, end)
        topics.append((topic, partitions))
    if frame[position]:
        skip_tags(frame, position, end)
    return ProduceBody(transactional_id, acks, timeout_ms, topics)


def _slice(frame: memoryview, position: int, size: int) -> memoryview:
    end = position + size
    if end > len(frame):
        raise ValueError(f"{size} bytes announced at {position} of {len(frame)}")
    return frame[position:end]


def _nullable_string(frame: memoryview, position: int) -> tuple[str | None, int]:
    (size,) = _INT16.unpack_from(frame, position)
    position += 2
    if size < 0:
        return None, position
    return str(_slice(frame, position, size), "utf-8"), position + size


def _compact_string(
    frame: memoryview, position: int, *, nullable: bool = False
) -> tuple[str | None, int]:
    size, position = read_unsigned_varint(frame, position)
    if size:
        stop = position + size - 1
        if stop > len(frame):
            raise ValueError(f"{size - 1} bytes announced at {position} of {len(frame)}")
        return str(frame[position:stop], "utf-8"), stop
    if not nullable:
        raise ValueError("a topic without a name")
    return None, position


def _compact_count(frame: memoryview, position: int, most: int) -> tuple[int, int]:
    """An array's length as it is written, one more than its elements, checked."""
    count, position = read_unsigned_varint(frame, position)
    _check_count(count - 1, frame, position, most)
    return count, position


def _check_count(count: int, frame: memoryview, position: int, most: int) -> None:
    # An element takes at least two bytes, so a larger count cannot be honest.
    if not 0 <= count <= most or count * 2 > len(frame) - position:
        raise ValueError(f"an array of {count} elements at {position}")


def encode_produce_response(
    correlation_id: int,
    version: int,
    topics: TopicAnswers,
    endpoints: Sequence[LeaderEndpoint] = (),
    throttle_ms: int = 0,
) -> bytes:
    """The whole frame, length and header included, of a Produce answer.

    `endpoints` are those of the leaders that refused partitions name.
    """
    if version >= FLEXIBLE_FROM and len(topics) == 1 and len(topics[0][1]) == 1:
        topic, (answer,) = topics[0]
        if answer.error_code == 0:
            return _encode_appended(correlation_id, topic, answer, throttle_ms)
    out = bytearray(8)
    if any(answer.error_code for _, answers in topics for answer in answers):
        _encode_errors(out, version, topics, endpoints, throttle_ms)
    elif version >= FLEXIBLE_FROM:
        _encode_flexible(out, topics, throttle_ms)
    else:
        _encode_classic(out, version, topics, throttle_ms)
    _FRAME.pack_into(out, 0, len(out) - 4, correlation_id)
    return bytes(out)


def _encode_appended(
    correlation_id: int, topic: TopicKey, answer: PartitionAnswer, throttle_ms: int
) -> bytes:
    """The most frequent answer of all: one topic, one partition, no error, flexible version."""
    if isinstance(topic, str):
        name = topic.encode()
        topic = unsigned_varint(len(name) + 1) + name
    partition, _, base_offset, append_time, log_start = answer[:5]
    return (
        _ONE_HEAD.pack(_ONE_BYTES + len(topic), correlation_id, 0, 2)
        + topic
        + _ONE_TAIL.pack(
            2, partition, 0, base_offset, append_time, log_start, 1, 0, 0, 0, throttle_ms, 0
        )
    )


def _encode_classic(out: bytearray, version: int, topics: TopicAnswers, throttle_ms: int) -> None:
    out += _INT32.pack(len(topics))
    for topic, partitions in topics:
        assert isinstance(topic, str)
        name = topic.encode()
        out += _INT16.pack(len(name))
        out += name
        out += _INT32.pack(len(partitions))
        for p in partitions:
            partition, code, base, append_time, start = p[:5]
            if version < 5:
                out += _PARTITION_V3.pack(partition, code, base, append_time)
            elif version < 8:
                out += _PARTITION_V5.pack(partition, code, base, append_time, start)
            else:
                out += _PARTITION_V8_OK.pack(partition, code, base, append_time, start, 0, -1)
    out += _INT32.pack(throttle_ms)


def _encode_flexible(out: bytearray, topics: TopicAnswers, throttle_ms: int) -> None:
    out.append(0)  # no tagged fields in the header
    out += unsigned_varint(len(topics) + 1)
    for topic, partitions in topics:
        if isinstance(topic, bytes):
            out += topic
        else:
            name = topic.encode()
            out += unsigned_varint(len(name) + 1)
            out += name
        out += unsigned_varint(len(partitions) + 1)
        for p in partitions:
            partition, code, base, append_time, start = p[:5]
            out += _PARTITION_V9_OK.pack(partition, code, base, append_time, start, 1, 0, 0)
        out.append(0)
    out += _INT32.pack(throttle_ms)
    out.append(0)  # no tagged fields


def _encode_errors(
    out: bytearray,
    version: int,
    topics: TopicAnswers,
    endpoints: Sequence[LeaderEndpoint],
    throttle_ms: int,
) -> None:
    """Answers with errors are rare and rich: they go through the tables."""
    if version >= FLEXIBLE_FROM:
        out.append(0)  # no tagged fields in the header
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic if isinstance(topic, str) else "",
                topic_id=topic if isinstance(topic, bytes) else ZERO_UUID,
                partition_responses=[_with_error(answer, version) for answer in answers],
            )
            for topic, answers in topics
        ],
        node_endpoints=[
            NodeEndpoint(node_id=e.id, host=e.host, port=e.port, rack=e.rack)
            for e in (endpoints if version >= LEADER_FROM else ())
        ],
        throttle_time_ms=throttle_ms,
    )
    response.encode_into(out, version)


def _with_error(answer: PartitionAnswer, version: int) -> PartitionProduceResponse:
    leader = LeaderIdAndEpoch()
    if version >= LEADER_FROM:
        leader = LeaderIdAndEpoch(leader_id=answer.leader_id, leader_epoch=answer.leader_epoch)
    return PartitionProduceResponse(
        index=answer.partition,
        error_code=answer.error_code,
        base_offset=answer.base_offset,
        log_append_time_ms=answer.log_append_time_ms,
        log_start_offset=answer.log_start_offset,
        record_errors=[
            BatchIndexAndErrorMessage(
                batch_index=place, batch_index_error_message=answer.error_message
            )
            for place in answer.record_errors
        ],
        error_message=answer.error_message,
        current_leader=leader,
    )
