"""Rows in Arrow columns into record batches, without a Python object per row.

Duty: `Rows` holds what is written of each row (key, value, encoded headers, time); `encode` makes
one record batch of them. The varints of all records are computed together, and Arrow joins the
pieces of each record, so that the bytes of the joined column are the bytes of the batch.

Invariants: a batch holds records with offset deltas 0 to n - 1. A row without a time has that of
its sending. Null keys and values stay null.

Limits: `cut` makes batches of at most `BATCH_BYTES_MAX`; one larger row has a batch of its own.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.base.ids import NO_LEADER_EPOCH
from penstock.spark.errors import SparkError
from penstock.wire.compression import Compression, compress
from penstock.wire.records import MAGIC, TRANSACTIONAL_FLAG, BatchHeader, assemble
from penstock.wire.varint import unsigned_varint

BATCH_BYTES_MAX: Final = 512 * 1024
"""Of records, before compression; well below the default of max.message.bytes."""
RECORD_OVERHEAD_BYTES_MAX: Final = 32
"""Lengths, deltas and attributes of one record."""
NO_HEADERS: Final = b"\0"
NO_TIMESTAMP: Final = -1
"""Kafka's mark of a record that has no time."""
_ATTRIBUTES: Final = pa.scalar(b"\0", pa.binary())
_NO_DELTA: Final = _ATTRIBUTES
_NOTHING: Final = pa.scalar(b"", pa.binary())
_SHIFTS: Final = np.arange(0, 70, 7, dtype=np.uint64)
_PLACES: Final = np.arange(10)

Ints: TypeAlias = NDArray[np.int64]


class Stamp(NamedTuple):
    """What a batch's header says of its producer."""

    producer_id: int
    producer_epoch: int
    sequence: int
    transactional: bool


class Rows(NamedTuple):
    """Columns of equal length, None where no row has any: binary, and milliseconds as int64."""

    key: Any
    value: Any
    headers: Any
    timestamp: Any = None

    def __len__(self) -> int:
        return len(self.value)

    def slice(self, start: int, stop: int) -> Rows:
        count = stop - start
        return Rows(*(None if c is None else c.slice(start, count) for c in self))

    def take(self, places: Ints) -> Rows:
        wanted = pa.array(places)
        return Rows(*(None if c is None else c.take(wanted) for c in self))

    def sizes(self) -> Ints:
        """The most bytes that each row can take in a batch."""
        total = np.full(len(self), RECORD_OVERHEAD_BYTES_MAX, dtype=np.int64)
        for column in self[:3]:
            if column is not None:
                total += np.maximum(_lengths(column), 0)
        return total


def payload_bytes(rows: Rows) -> int:
    """Bytes of all keys and values."""
    parts = (pc.sum(pc.binary_length(c)).as_py() for c in rows[:2] if c is not None)
    return sum(part or 0 for part in parts)


def cut(rows: Rows) -> list[Rows]:
    """The same rows in pieces of at most `BATCH_BYTES_MAX`, at least one row in each."""
    ends = np.cumsum(rows.sizes())
    pieces, start, before = [], 0, 0
    while start < len(rows):
        stop = int(np.searchsorted(ends, before + BATCH_BYTES_MAX, side="right"))
        stop = max(stop, start + 1)
        pieces.append(rows.slice(start, stop))
        start, before = stop, int(ends[stop - 1])
    return pieces


def milliseconds(column: Any) -> Any:
    """A column of times as Kafka has them; null stays null."""
    found = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    least = pc.min(found).as_py()
    if least is not None and least < NO_TIMESTAMP:
        raise SparkError(
            f"a row has the timestamp {least} ms, before 1970, which no record can have: correct"
            " column 'timestamp', or set it to null, which means now"
        )
    return found


def encode(rows: Rows, stamp: Stamp, now_ms: int, compression: Compression) -> bytes:
    """One record batch of all rows; those without a time get `now_ms`."""
    base_ms = max_ms = now_ms
    deltas_ms = None
    if rows.timestamp is not None:
        times_ms = rows.timestamp.fill_null(now_ms).to_numpy(zero_copy_only=False)
        base_ms, max_ms = int(times_ms[0]), int(times_ms.max())
        deltas_ms = times_ms - base_ms
    body = _records(rows, deltas_ms)
    header = BatchHeader(
        base_offset=0,
        length=0,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=compression | (TRANSACTIONAL_FLAG if stamp.transactional else 0),
        last_offset_delta=len(rows) - 1,
        base_timestamp=base_ms,
        max_timestamp=max_ms,
        producer_id=stamp.producer_id,
        producer_epoch=stamp.producer_epoch,
        base_sequence=stamp.sequence,
        record_count=len(rows),
    )
    return assemble(header, compress(compression, bytes(body)) if compression else body)


def _records(rows: Rows, deltas_ms: Ints | None) -> memoryview:
    count = len(rows)
    no_key = np.full(count, -1, dtype=np.int64)
    key_lengths = no_key if rows.key is None else _lengths(rows.key)
    value_lengths = _lengths(rows.value)
    deltas, delta_sizes = _varints(np.arange(count, dtype=np.int64))
    keys, key_sizes = _varints(key_lengths)
    values, value_sizes = _varints(value_lengths)
    times, time_sizes = (_NO_DELTA, 1) if deltas_ms is None else _varints(deltas_ms)
    sizes = 1 + time_sizes + delta_sizes + key_sizes + value_sizes
    sizes += np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0)
    sizes += 1 if rows.headers is None else _lengths(rows.headers)
    lengths, _ = _varints(sizes)
    joined = pc.binary_join_element_wise(
        lengths,
        _ATTRIBUTES,
        times,
        deltas,
        keys,
        _NOTHING if rows.key is None else rows.key.fill_null(b""),
        values,
        rows.value.fill_null(b""),
        pa.scalar(NO_HEADERS, pa.binary()) if rows.headers is None else rows.headers,
        b"",
    )
    return _data(joined)


def _data(column: Any) -> memoryview:
    """The bytes of a binary column, one value after the other."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)
    first, last = ends[column.offset], ends[column.offset + len(column)]
    return memoryview(data)[first:last]


def _lengths(column: Any) -> Ints:
    """The length of each value, -1 for null."""
    lengths = pc.binary_length(column).fill_null(-1)
    found: Ints = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _varints(numbers: Ints) -> tuple[Any, Ints]:
    """Each number as a zigzag varint in a binary column, and the bytes that it takes."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)
    width = max(1, -(-int(zigzag.max(initial=0)).bit_length() // 7))
    sizes = np.ones(len(numbers), dtype=np.int64)
    for shift in _SHIFTS[1:width]:
        sizes += zigzag >= np.uint64(1) << shift
    septets = (zigzag[:, None] >> _SHIFTS[:width]).astype(np.uint8) & 0x7F
    places = _PLACES[:width]
    septets |= np.where(places < sizes[:, None] - 1, 0x80, 0).astype(np.uint8)
    data = septets[places < sizes[:, None]]
    offsets = np.zeros(len(numbers) + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(numbers), buffers), sizes


def encode_headers(column: Any) -> Any:
    """The headers of each row, as they stand in its record; a null header's value stays null."""
    return pa.array([_headers(row) for row in column.to_pylist()], pa.binary())


def _headers(row: list[dict[str, Any] | None] | None) -> bytes:
    if not row:
        return NO_HEADERS
    out = bytearray(unsigned_varint(len(row) << 1))
    for header in row:
        if header is None or header["key"] is None:
            raise SparkError(
                "a row has a header without a key: fill the key in column 'headers', or leave the"
                " header out"
            )
        name = header["key"].encode()
        out += unsigned_varint(len(name) << 1) + name
        value = header["value"]
        if value is None:
            out.append(1)
        else:
            out += unsigned_varint(len(value) << 1) + value
    return bytes(out)
