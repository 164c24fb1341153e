"""Record batches of magic 2: the public door to their headers (`record_batch`) and to the records
inside.

Duty: `read_records` and `build_batch` turn a batch into records and back; `recompress` and the
control-record helpers rest on them. Brokers call these only where a feature must look inside a
batch.

Invariants: `read_records` checks every count, length and varint against the bytes that are there,
and offset deltas rise strictly within the header's last offset delta, so a batch that passes can
be built again record by record. Header keys are text whose invalid UTF-8 is kept by surrogate
escapes: reading and building again gives the same bytes.

Limits: decompression is bounded by `DECOMPRESSED_BATCH_BYTES_MAX`; nothing here checks the CRC
(`check_batch` does).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from penstock.base.errors import CorruptRecord
from penstock.base.ids import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from penstock.base.limits import DECOMPRESSED_BATCH_BYTES_MAX
from penstock.wire.compression import Buf, Compression, compress, decompress, unpack
from penstock.wire.record_batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CRC_START,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    RECORD_BYTES_MIN,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    assemble,
    check_batch,
    check_batches,
    check_producer_batch,
    check_record_lengths,
    parse_header,
    rewrite_header,
)

__all__ = [
    "COMPRESSION_MASK",
    "CONTROL_FLAG",
    "CRC_START",
    "DELETE_HORIZON_FLAG",
    "HEADER_SIZE",
    "LOG_OVERHEAD",
    "MAGIC",
    "TIMESTAMP_TYPE_FLAG",
    "TRANSACTIONAL_FLAG",
    "BatchHeader",
    "Compression",
    "ControlType",
    "EndTxnMarker",
    "Header",
    "Record",
    "assemble",
    "build_batch",
    "build_end_txn_marker",
    "check_batch",
    "check_batches",
    "check_producer_batch",
    "check_record_lengths",
    "control_type",
    "decompressed_body",
    "encode_record",
    "parse_end_txn_marker",
    "parse_header",
    "read_records",
    "recompress",
    "rewrite_header",
]

Header = tuple[str, bytes | None]

_VARINT_BYTES_MAX: Final = 5
_VARLONG_BYTES_MAX: Final = 10
_CONTROL_KEY: Final = Struct(">hh")
_END_TXN_VALUE: Final = Struct(">hi")


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


_new_record: Final = tuple.__new__
"""Makes a record from a ready tuple without a call in Python."""


class ControlType(IntEnum):
    """What the key of a control record says it is."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


class EndTxnMarker(NamedTuple):
    """The one record of the control batch that ends a transaction."""

    commit: bool
    coordinator_epoch: int


def decompressed_body(
    batch: Buf, header: BatchHeader, *, max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
) -> bytes:
    """The records section of one whole batch, unpacked."""
    body = memoryview(batch)[HEADER_SIZE : header.size]
    body_bytes = decompress(header.compression, body, max_bytes=max_bytes)
    if header.record_count < 0 or header.record_count * RECORD_BYTES_MIN > len(body_bytes):
        raise CorruptRecord(
            f"batch at offset {header.base_offset} claims {header.record_count} records "
            f"in {len(body_bytes)} bytes"
        )
    return body_bytes


def read_records(batch: Buf, *, max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX) -> list[Record]:
    """The records of one whole batch, checked to the last byte."""
    header = parse_header(batch)
    if header.size != len(batch):
        raise CorruptRecord(f"a batch of {header.size} bytes was handed over as {len(batch)} bytes")
    body = decompressed_body(batch, header, max_bytes=max_bytes)
    try:
        return _parse_records(body, header)
    except IndexError as e:
        raise CorruptRecord(
            f"batch at offset {header.base_offset}: a record ends before its last field"
        ) from e


def _parse_records(body: bytes, header: BatchHeader) -> list[Record]:
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    last_delta = header.last_offset_delta
    append_time = header.max_timestamp if header.log_append_time else None
    records: list[Record] = []
    end, previous_delta, body_end = 0, -1, len(body)
    for _ in range(header.record_count):
        length, pos = _varint(body, end)
        end = pos + length
        if length < RECORD_BYTES_MIN - 1 or end > body_end:
            raise _corrupt(header, f"a record of {length} bytes does not fit in the batch")
        # One byte of record attributes follows; none are defined, so its value is not looked at.
        timestamp, pos = _varint(body, pos + 1, _VARLONG_BYTES_MAX)
        timestamp = base_timestamp + timestamp if append_time is None else append_time
        delta, pos = _varint(body, pos)
        if not previous_delta < delta <= last_delta:
            raise _corrupt(header, f"offset delta {delta} after {previous_delta}, {last_delta=}")
        previous_delta = delta
        length, pos = _varint(body, pos)
        key = value = None
        if length >= 0:
            key = body[pos : pos + length]
            pos += length
        elif length != -1:
            raise _corrupt(header, f"a key of {length} bytes")
        length, pos = _varint(body, pos)
        if length >= 0:
            value = body[pos : pos + length]
            pos += length
        elif length != -1:
            raise _corrupt(header, f"a value of {length} bytes")
        headers: tuple[Header, ...] = ()
        if body[pos]:
            headers, pos = _parse_headers(body, pos, end, header)
        else:
            pos += 1
        # Key and value lie inside the record, too, if what follows them ends where it should.
        if pos != end:
            raise _corrupt(header, "the fields of a record do not fill its length")
        records.append(_new_record(Record, (base_offset + delta, timestamp, key, value, headers)))
    if end != body_end:
        raise _corrupt(header, f"{body_end - end} bytes follow the last record")
    return records


def _parse_headers(
    body: bytes, pos: int, end: int, header: BatchHeader
) -> tuple[tuple[Header, ...], int]:
    count, pos = _varint(body, pos)
    if not 0 <= count <= (end - pos) // 2:
        raise _corrupt(header, f"a record claims {count} headers in {end - pos} bytes")
    found: list[Header] = []
    for _ in range(count):
        name, pos = _nullable_bytes(body, pos, end, header)
        if name is None:
            raise _corrupt(header, "a record header without a key")
        value, pos = _nullable_bytes(body, pos, end, header)
        found.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(found), pos


def _nullable_bytes(
    body: bytes, pos: int, end: int, header: BatchHeader
) -> tuple[bytes | None, int]:
    length, pos = _varint(body, pos)
    if length < 0:
        if length != -1:
            raise _corrupt(header, f"a field of {length} bytes")
        return None, pos
    stop = pos + length
    if stop > end:
        raise _corrupt(header, f"a field of {length} bytes reaches beyond its record")
    return body[pos:stop], stop


def _varint(body: bytes, pos: int, bytes_max: int = _VARINT_BYTES_MAX) -> tuple[int, int]:
    """A zigzag varint and the position after it; `IndexError` at the end of `body`."""
    byte = body[pos]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    value = byte & 0x7F
    for shift in range(7, bytes_max * 7, 7):
        pos += 1
        byte = body[pos]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), pos + 1
    raise CorruptRecord(f"a varint of more than {bytes_max} bytes")


def _corrupt(header: BatchHeader, what: str) -> CorruptRecord:
    return CorruptRecord(f"batch at offset {header.base_offset}: {what}")


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    log_append_time: bool = False,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """One batch of `records` at `base_offset` and on; the records' own offsets are not looked at.

    With `log_append_time` the batch's one timestamp is the largest of the records'.
    """
    records = records if isinstance(records, list) else list(records)
    if not records:
        raise ValueError("a batch is built from at least one record")
    base_timestamp = records[0].timestamp
    body = bytearray()
    for delta, record in enumerate(records):
        encode_record(body, delta, record.timestamp - base_timestamp, record)
    attributes = (
        compression
        | (TIMESTAMP_TYPE_FLAG if log_append_time else 0)
        | (TRANSACTIONAL_FLAG if transactional else 0)
        | (CONTROL_FLAG if control else 0)
    )
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        partition_leader_epoch=partition_leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return assemble(header, compress(compression, body, level) if compression else body)


def encode_record(out: bytearray, offset_delta: int, timestamp_delta: int, record: Record) -> None:
    """Append one record in its batch encoding; only key, value and headers are taken from
    `record`.
    """
    fields = bytearray(1)
    _put_varint(fields, timestamp_delta)
    _put_varint(fields, offset_delta)
    _put_bytes(fields, record.key)
    _put_bytes(fields, record.value)
    if record.headers:
        _put_varint(fields, len(record.headers))
        for name, value in record.headers:
            _put_bytes(fields, name.encode("utf-8", "surrogateescape"))
            _put_bytes(fields, value)
    else:
        fields.append(0)
    _put_varint(out, len(fields))
    out += fields


def _put_varint(out: bytearray, value: int) -> None:
    value = value << 1 if value >= 0 else ~(value << 1)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _put_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)
    else:
        _put_varint(out, len(data))
        out += data


def recompress(batch: Buf, kind: Compression, level: int | None = None) -> bytes:
    """The same batch with its records packed by `kind`; every record keeps its bytes."""
    header = parse_header(batch)
    packed = memoryview(batch)[HEADER_SIZE : header.size]
    body = unpack(header.compression, packed, max_bytes=DECOMPRESSED_BATCH_BYTES_MAX)
    attributes = header.attributes & ~COMPRESSION_MASK | kind
    return assemble(header._replace(attributes=attributes), compress(kind, body, level))


def build_end_txn_marker(
    marker: EndTxnMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The control batch that commits or aborts `producer_id`'s transaction in one partition."""
    kind = ControlType.COMMIT if marker.commit else ControlType.ABORT
    record = Record(
        offset=base_offset,
        timestamp=timestamp,
        key=_CONTROL_KEY.pack(0, kind),
        value=_END_TXN_VALUE.pack(0, marker.coordinator_epoch),
    )
    return build_batch(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        partition_leader_epoch=partition_leader_epoch,
    )


def control_type(record: Record) -> ControlType:
    """What kind of control record this is; a type this version does not know is `UNKNOWN`."""
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise CorruptRecord(f"the control record at offset {record.offset} has no type in its key")
    _version, kind = _CONTROL_KEY.unpack_from(record.key)
    return ControlType(kind) if kind in ControlType.__members__.values() else ControlType.UNKNOWN


def parse_end_txn_marker(record: Record) -> EndTxnMarker:
    """The marker in a control record whose `control_type` is ABORT or COMMIT."""
    kind = control_type(record)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        raise CorruptRecord(f"the control record at offset {record.offset} ends no transaction")
    if record.value is None or len(record.value) < _END_TXN_VALUE.size:
        raise CorruptRecord(f"the marker at offset {record.offset} has no coordinator epoch")
    _version, coordinator_epoch = _END_TXN_VALUE.unpack_from(record.value)
    return EndTxnMarker(kind is ControlType.COMMIT, coordinator_epoch)
