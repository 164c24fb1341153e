"""Requests of the raw load as ready frames: encoded once, then only patched where they must
differ.

A frame is a length, the request header and the body. The correlation id lies at a fixed place;
so does the fetch offset of a frame that asks for one partition.
"""

from __future__ import annotations

import struct
import time

from penstock.base.errors import ErrorCode
from penstock.cli.errors import CliError
from penstock.wire.apis import ApiKey, request_header_version, response_header_version
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock.wire.messages.header import RequestHeader, ResponseHeader
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.wire.record_batch import HEADER_SIZE
from penstock.wire.records import Record, build_batch
from penstock.wire.schema import Message

CLIENT_ID = "penstock-bench"
PRODUCE_VERSION = 12
"""The last version that names topics by name, so that no topic id is needed."""
FETCH_VERSION = 12
"""The last version that names topics by name."""

LENGTH_BYTES = 4
CORRELATION_ID_AT = 8
PRODUCE_TIMEOUT_MS = 30_000

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_BATCH_START = struct.Struct(">qi")
_RECORD_COUNT_AT = HEADER_SIZE - 4
_LOG_OVERHEAD = 12


def frame(api_key: ApiKey, request: Message, version: int) -> bytearray:
    """`request` as it goes over the wire, with correlation id 0."""
    header = RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=0, client_id=CLIENT_ID
    )
    body = header.encode(request_header_version(api_key, version)) + request.encode(version)
    return bytearray(_INT32.pack(len(body)) + body)


def patch_correlation_id(request: bytearray, correlation_id: int) -> None:
    _INT32.pack_into(request, CORRELATION_ID_AT, correlation_id & 0x7FFFFFFF)


def batch_of(message_bytes: int, count: int) -> bytes:
    """A batch of `count` equal messages of the present time."""
    value = bytes(i % 251 for i in range(message_bytes))
    return build_batch([Record(0, time.time_ns() // 1_000_000, None, value, ())] * count)


def message_batch(message_bytes: int, batch_bytes: int) -> tuple[bytes, int]:
    """A batch of equal messages, at most `batch_bytes` long unless one message is more, and their
    number.
    """
    one, two = (len(batch_of(message_bytes, count)) for count in (1, 2))
    per_message = two - one
    count = max(1, 1 + (batch_bytes - one) // per_message)
    batch = batch_of(message_bytes, count)
    while len(batch) > batch_bytes and count > 1:  # larger offsets take more bytes
        count -= -(-(len(batch) - batch_bytes) // per_message)
        batch = batch_of(message_bytes, count)
    return batch, count


def produce_frame(topic: str, partitions: list[int], batch: bytes, acks: int) -> bytearray:
    """A produce request with `batch` for each of `partitions`."""
    data = [PartitionProduceData(index=p, records=batch) for p in partitions]
    request = ProduceRequest(
        acks=acks,
        timeout_ms=PRODUCE_TIMEOUT_MS,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )
    return frame(ApiKey.PRODUCE, request, PRODUCE_VERSION)


def check_produce_response(response: bytes | memoryview) -> None:
    """Raises when the broker refused a batch; `response` is a frame without its length."""
    header_version = response_header_version(ApiKey.PRODUCE, PRODUCE_VERSION)
    _, pos = ResponseHeader.decode_from(response, 0, header_version)
    body, _ = ProduceResponse.decode_from(response, pos, PRODUCE_VERSION)
    for topic in body.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                name = ErrorCode(partition.error_code).name
                why = f": {partition.error_message}" if partition.error_message else ""
                raise CliError(
                    f"the broker refused a batch for {topic.name}-{partition.index} ({name}{why}):"
                    " choose smaller batches or look at the broker's log"
                )


def first_error_at(topic: str, partitions: int) -> int:
    """Where the first partition's error code stands in a produce response of one topic."""
    header = 4 + 1  # correlation id, no tagged fields
    topics = 1 + 1 + len(topic.encode())  # both lengths fit one byte
    return header + topics + (1 if partitions < 127 else 2) + 4


class FetchFrame:
    """A fetch request for one partition, whose offset is patched in before each sending."""

    def __init__(self, topic: str, partition: int, max_bytes: int, max_wait_ms: int) -> None:
        marker = 0x7A7B7C7D7E7F7071  # found again in the frame: it is where the offset goes
        wanted = FetchPartition(
            partition=partition, fetch_offset=marker, partition_max_bytes=max_bytes
        )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        self.frame = frame(ApiKey.FETCH, request, FETCH_VERSION)
        self._offset_at = self.frame.index(_INT64.pack(marker))

    def at(self, offset: int, correlation_id: int) -> bytearray:
        """The frame that asks for `offset`."""
        _INT64.pack_into(self.frame, self._offset_at, offset)
        patch_correlation_id(self.frame, correlation_id)
        return self.frame


def fetched_records(response: memoryview) -> memoryview:
    """The batches of a fetch response for one partition; `response` is a frame without its
    length.
    """
    header_version = response_header_version(ApiKey.FETCH, FETCH_VERSION)
    _, pos = ResponseHeader.decode_from(response, 0, header_version)
    body, _ = FetchResponse.decode_from(response, pos, FETCH_VERSION)
    error = body.error_code
    for topic in body.responses:
        for partition in topic.partitions:
            error = error or partition.error_code
            if not error:
                return memoryview(partition.records or b"")
    if error:
        name = ErrorCode(error).name
        raise CliError(f"the broker refused a fetch with {name}; look at the broker's log")
    return memoryview(b"")


def count_records(batches: memoryview) -> tuple[int, int]:
    """Number of records in whole batches, and the offset after the last; (0, -1) when there is
    none.
    """
    pos, records, next_offset = 0, 0, -1
    end = len(batches)
    while pos + HEADER_SIZE <= end:
        base_offset, length = _BATCH_START.unpack_from(batches, pos)
        size = length + _LOG_OVERHEAD
        if pos + size > end:
            break
        (count,) = _INT32.unpack_from(batches, pos + _RECORD_COUNT_AT)
        records += count
        next_offset = base_offset + count
        pos += size
    return records, next_offset
