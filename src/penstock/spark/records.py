"""Record batches, as a Fetch answer carries them, into Arrow, without a Python object per record.

Duty: `chunks_of` checks the batches of an answer, leaves out what a reader must not see and gathers
their unpacked records; `to_arrow` decodes all records of such a chunk at once. Only the
way from one record to the next is walked in Python: everything else is done for all records
together, field by field, and keys and values are copied once, by Arrow.

Invariants: every batch's CRC is checked; a record whose fields do not end where its length says is
refused, so a chunk is decoded whole or not at all. Offsets below `first` and from `end` on are left
out.

Limits: a chunk is cut when it holds `CHUNK_BYTES_MAX` of records; one batch may be larger, up to
`DECOMPRESSED_BATCH_BYTES_MAX`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.base.errors import CorruptRecord
from penstock.wire.records import (
    BatchHeader,
    check_batch,
    decompressed_body,
    parse_header,
)

CHUNK_BYTES_MAX = 8 * 1024 * 1024
"""Records that are decoded together; also what bounds the Arrow batches handed to Spark."""
_PADDING = bytes(16)
"""Behind the records of a chunk: a damaged length leads here before it leads out of the buffer."""

Ints: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.uint8]

HEADERS_TYPE = pa.list_(
    pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
)
COLUMNS: tuple[tuple[str, pa.DataType], ...] = (
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("timestampType", pa.int32()),
)
SCHEMA = pa.schema(list(COLUMNS))
SCHEMA_WITH_HEADERS = pa.schema([*COLUMNS, ("headers", HEADERS_TYPE)])


class Chunk:
    """The unpacked records of some batches, and what their headers say."""

    __slots__ = ("batches", "bodies", "size")

    def __init__(self) -> None:
        self.bodies: list[bytes | memoryview] = []
        self.batches: list[BatchHeader] = []
        self.size = 0

    def add(self, header: BatchHeader, body: bytes | memoryview) -> None:
        self.batches.append(header)
        self.bodies.append(body)
        self.size += len(body)


class Aborted:
    """Which transactional batches of one answer belong to transactions that were aborted."""

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        self._begin = sorted(((first, producer) for producer, first in transactions), reverse=True)
        self._open: set[int] = set()

    def hides(self, header: BatchHeader) -> bool:
        """Whether the records of this batch, the next in the order of offsets, are to be left
        out.
        """
        while self._begin and self._begin[-1][0] <= header.last_offset:
            self._open.add(self._begin.pop()[1])
        if header.is_control:
            # Whatever it says, and if compaction has emptied it: what its producer had open ends.
            self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open


class Place(NamedTuple):
    """Where records come from, and which of them are wanted."""

    topic: str
    partition: int
    first: int
    end: int


def chunks_of(
    records: memoryview, place: Place, aborted: Aborted | None
) -> Iterator[tuple[Chunk, int]]:
    """The wanted batches in chunks, each with the offset that reading goes on from after it.

    A batch that was cut off at the end of the answer is left for the next one.
    """
    hidden = aborted or Aborted(())
    chunk, following, pos = Chunk(), place.first, 0
    while (size := _whole_batch(records, pos)) and following < place.end:
        batch = records[pos : pos + size]
        header = check_batch(batch)
        pos += size
        following = max(following, header.last_offset + 1)
        if hidden.hides(header) or header.last_offset < place.first:
            continue
        if header.record_count and header.base_offset < place.end:
            chunk.add(header, decompressed_body(batch, header))
        if chunk.size >= CHUNK_BYTES_MAX:
            yield chunk, min(following, place.end)
            chunk = Chunk()
    yield chunk, min(following, place.end)


def offset_after(records: memoryview, offset: int) -> int:
    """The offset after the last whole batch, by the headers alone; `offset` if there is none."""
    pos = 0
    while size := _whole_batch(records, pos):
        offset = max(offset, parse_header(records, pos).last_offset + 1)
        pos += size
    return offset


def _whole_batch(records: memoryview, pos: int) -> int:
    """Bytes of the batch at `pos`; 0 if it does not lie whole in the answer."""
    if len(records) - pos < 12:
        return 0
    size = int.from_bytes(records[pos + 8 : pos + 12], "big", signed=True) + 12
    if size <= 12:
        raise CorruptRecord(f"a batch at byte {pos} of the answer claims {size - 12} bytes")
    return size if pos + size <= len(records) else 0


def to_arrow(chunk: Chunk, place: Place, *, headers: bool) -> pa.RecordBatch:
    """The chunk's records between `place.first` and `place.end` as rows of Spark's Kafka source."""
    buffer = b"".join([*chunk.bodies, _PADDING])
    try:
        return _Decoding(buffer, chunk, place).record_batch(headers)
    except (IndexError, CorruptRecord) as e:
        first, last = chunk.batches[0].base_offset, chunk.batches[-1].last_offset
        raise CorruptRecord(
            f"topic {place.topic} partition {place.partition}: a record between offsets {first} and"
            f" {last} cannot be read ({e})"
        ) from e


class _Decoding:
    """One chunk's records, field by field."""

    def __init__(self, buffer: bytes, chunk: Chunk, place: Place) -> None:
        self.place = place
        self.data: Bytes = np.frombuffer(buffer, np.uint8)
        self.buffer = pa.py_buffer(buffer)
        sizes, starts = self.varints(np.array(_walk(buffer, chunk), np.int64))
        self.ends: Ints = starts + sizes
        stamps, at = self.varints(starts + 1)
        deltas, self.at = self.varints(at)
        counts = [header.record_count for header in chunk.batches]
        self.offsets: Ints = deltas + _spread([h.base_offset for h in chunk.batches], counts)
        self.stamps = _timestamps(stamps, chunk.batches, counts)
        self.stamp_types = _spread([h.log_append_time for h in chunk.batches], counts)
        wanted = (self.offsets >= place.first) & (self.offsets < place.end)
        if not wanted.all():
            self.keep(wanted)

    def keep(self, wanted: NDArray[np.bool_]) -> None:
        for name in ("ends", "at", "offsets", "stamps", "stamp_types"):
            setattr(self, name, getattr(self, name)[wanted])

    def record_batch(self, headers: bool) -> pa.RecordBatch:
        rows = len(self.offsets)
        key, at = self.field(self.at)
        value, at = self.field(at)
        header_counts, at = self.varints(at)
        self.check_ends(at, header_counts)
        columns: list[Any] = [
            key,
            value,
            pa.repeat(pa.scalar(self.place.topic), rows),
            pa.array(np.full(rows, self.place.partition, np.int32)),
            pa.array(self.offsets),
            pa.array(self.stamps * 1000).view(COLUMNS[5][1]),
            pa.array(self.stamp_types.astype(np.int32)),
        ]
        if not headers:
            return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        columns.append(self.headers(at, header_counts))
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA_WITH_HEADERS)

    def check_ends(self, at: Ints, header_counts: Ints) -> None:
        wrong = (at > self.ends) | ((header_counts == 0) & (at != self.ends)) | (header_counts < 0)
        if wrong.any():
            offset = self.offsets[int(wrong.argmax())]
            raise CorruptRecord(f"at offset {offset} the fields do not fill the record")

    def varints(self, at: Ints) -> tuple[Ints, Ints]:
        """The zigzag numbers at these positions, and the positions behind them."""
        byte = self.data[at]
        value = (byte & 0x7F).astype(np.int64)
        after = at + 1
        more = np.flatnonzero(byte & 0x80)
        shift = 7
        while len(more):
            if shift > 63:
                raise CorruptRecord("a number has more than ten bytes")
            byte = self.data[after[more]]
            value[more] |= (byte & 0x7F).astype(np.int64) << shift
            after[more] += 1
            more = more[(byte & 0x80) != 0]
            shift += 7
        return ((value >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(value & 1), after

    def field(self, at: Ints, kind: pa.DataType = COLUMNS[0][1]) -> tuple[pa.Array, Ints]:
        """The byte strings, each behind its length, at these positions; -1 says null."""
        lengths, starts = self.varints(at)
        nulls = lengths < 0
        stops = starts + np.where(nulls, 0, lengths)
        if len(stops) and (int(stops.max()) > len(self.data) or int(lengths.min()) < -1):
            raise CorruptRecord("a length leads out of its record")
        return self.slices(starts, stops, nulls, kind), stops

    def slices(
        self, starts: Ints, stops: Ints, nulls: NDArray[np.bool_], kind: pa.DataType
    ) -> pa.Array:
        # Arrow sees one array of slices and what lies between them, and copies the slices out.
        rows = len(starts)
        bounds = np.zeros(2 * rows + 1, np.int32)
        bounds[0:-1:2] = starts
        bounds[1::2] = stops
        bounds[-1] = stops[-1] if rows else 0
        both = pa.Array.from_buffers(kind, 2 * rows, [None, pa.py_buffer(bounds), self.buffer])
        even = np.arange(0, 2 * rows, 2)
        return both.take(pa.array(even, mask=nulls) if nulls.any() else pa.array(even))

    def headers(self, at: Ints, counts: Ints) -> pa.Array:
        """Each record's headers as a list; the n-th headers of all records are read together."""
        total = int(counts.sum())
        if int(counts.max(initial=0)) > len(self.data) or total > len(self.data):
            raise CorruptRecord("a count of headers is larger than the records")
        rows = np.arange(len(counts))
        owners, keys, values = [rows[:0]], [], []
        for n in range(int(counts.max(initial=0))):
            rows = rows[counts[rows] > n]
            key, after = self.field(at[rows], pa.string())
            value, at[rows] = self.field(after)
            owners.append(rows)
            keys.append(key)
            values.append(value)
        if total and (at != self.ends).any():
            raise CorruptRecord("headers do not end with their record")
        order = pa.array(np.argsort(np.concatenate(owners), kind="stable"))
        key = pa.concat_arrays([pa.array([], pa.string()), *keys]).take(order)
        value = pa.concat_arrays([pa.array([], pa.binary()), *values]).take(order)
        pairs = pa.StructArray.from_arrays([key, value], ["key", "value"])
        bounds = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
        lists = pa.ListArray.from_arrays(bounds, pairs, type=HEADERS_TYPE)
        empty = pa.array(counts == 0)
        return pa.compute.if_else(empty, pa.scalar(None, HEADERS_TYPE), lists)


def _walk(buffer: bytes, chunk: Chunk) -> list[int]:
    """Where the length of each record is."""
    found: list[int] = []
    note = found.append
    at = 0
    for header, body in zip(chunk.batches, chunk.bodies, strict=True):
        stop = at + len(body)
        for _ in range(header.record_count):
            note(at)
            size = buffer[at]
            if size < 128:
                at += 1 + (size >> 1)
            elif (byte := buffer[at + 1]) < 128:
                at += 2 + (byte << 6) + ((size & 0x7F) >> 1)
            else:
                at = _behind_long_record(buffer, at)
        if at != stop:
            raise CorruptRecord(f"the batch at {header.base_offset} is not filled by its records")
    return found


def _behind_long_record(buffer: bytes, at: int) -> int:
    """Where the record at `at` ends, whose length takes three bytes or more."""
    size = 0
    for n in range(5):
        byte = buffer[at + n]
        size |= (byte & 0x7F) << 7 * n
        if byte < 128:
            return at + n + 1 + (size >> 1)
    raise CorruptRecord("a record's length has more than five bytes")


def _spread(values: list[Any], counts: list[int]) -> Ints:
    return np.repeat(np.array(values, np.int64), counts)


def _timestamps(deltas: Ints, batches: list[BatchHeader], counts: list[int]) -> Ints:
    created = deltas + _spread([h.base_timestamp for h in batches], counts)
    if not any(h.log_append_time for h in batches):
        return created
    appended = _spread([h.max_timestamp for h in batches], counts)
    return np.where(_spread([h.log_append_time for h in batches], counts) != 0, appended, created)
