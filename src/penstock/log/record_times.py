"""The times and offsets of the records in one batch, without making the records.

A batch may hold forty million records (`DECOMPRESSED_BATCH_BYTES_MAX`). So they are walked over,
one at a time, and a walk in a worker thread lets others run in between (`pause`): compiled code
does not do so by itself, and interpreted code only every few milliseconds.

The batch's CRC has been checked by then; what its bytes claim is still compared with what is there.
Any thread may walk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.base.errors import CorruptRecord
from penstock.base.limits import DECOMPRESSED_BATCH_BYTES_MAX
from penstock.wire.compression import unpack
from penstock.wire.records import HEADER_SIZE, BatchHeader

RECORDS_PER_PAUSE = 500
"""A millisecond of work, interpreted."""

_VARLONG_BYTES_MAX = 10


def record_times(
    batch: bytes, header: BatchHeader, pause: Callable[[], None]
) -> Iterator[tuple[int, int]]:
    """(timestamp, offset) of each record, in order; `CorruptRecord` if the batch is damaged."""
    packed = memoryview(batch)[HEADER_SIZE : header.size]
    body = unpack(header.compression, packed, max_bytes=DECOMPRESSED_BATCH_BYTES_MAX)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.log_append_time else None
    end, size, last_delta = 0, len(body), header.last_offset_delta
    for i in range(header.record_count):
        if i % RECORDS_PER_PAUSE == 0:
            pause()
        try:
            length, at = _varlong(body, end)
            end = at + length
            # One byte of record attributes is passed over.
            time_delta, at = _varlong(body, at + 1)
            offset_delta, at = _varlong(body, at)
        except IndexError:
            at, offset_delta = size + 1, -1
        if not at <= end <= size or not 0 <= offset_delta <= last_delta:
            raise CorruptRecord(f"batch at offset {base_offset}: record {i} is not one")
        timestamp = base_timestamp + time_delta if append_time is None else append_time
        yield timestamp, base_offset + offset_delta


def _varlong(body: memoryview, at: int) -> tuple[int, int]:
    """A zigzag varint and the position after it; `IndexError` at the end of `body`."""
    value = shift = 0
    for position in range(at, at + _VARLONG_BYTES_MAX):
        byte = body[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + 1
        shift += 7
    raise CorruptRecord(f"a varint of more than {_VARLONG_BYTES_MAX} bytes")
