"""The header of a record batch (magic 2): parsing, checking and changing it, never looking at the
records.

Duty: everything the hot path needs to know about a batch. `parse_header`, `check_batch` and
`check_batches` run once per batch at up to 100,000 batches a second, so they do one struct call,
one CRC over a memoryview and little else.

Invariants: the CRC-32C covers everything from the attributes to the end of the batch. Base
offset, length and partition leader epoch lie before it, so an append can set them without a new
CRC; `rewrite_header` computes one.

Limits: magic 0 and 1 are refused; Kafka 4 does not accept them either.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from penstock.base.errors import ApiError, CorruptRecord, ErrorCode
from penstock.wire.compression import Buf, Compression

HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12
"""Bytes before what a batch's `length` counts: base offset and the length itself."""
MAGIC: Final = 2
CRC_START: Final = 21
"""First byte that the CRC covers: the attributes."""
RECORD_BYTES_MIN: Final = 7
"""Length, attributes, timestamp delta, offset delta, null key, null value, no headers: a byte
each.
"""

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40
_ATTRIBUTES_KNOWN: Final = 0x7F
_LENGTH_MIN: Final = HEADER_SIZE - LOG_OVERHEAD
_SEQUENCE_MASK: Final = 0x7FFFFFFF
_VARINT_BITS_MAX: Final = 35

_HEADER: Final = Struct(">qiibIhiqqqhii")
_CRC: Final = Struct(">I")
_INSIDE_CRC: Final = Struct(">hiqqqhii")
_unpack_header: Final = _HEADER.unpack_from
_COMPRESSIONS: Final = tuple(Compression)


class BatchHeader(NamedTuple):
    """The thirteen fields of a magic-2 header, in wire order."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; numbers wrap to 0 after 2^31 - 1."""
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + self.last_offset_delta) & _SEQUENCE_MASK

    @property
    def compression(self) -> Compression:
        kind = self.attributes & COMPRESSION_MASK
        if kind >= len(_COMPRESSIONS):
            raise CorruptRecord(f"batch at offset {self.base_offset}: no compression has id {kind}")
        return _COMPRESSIONS[kind]

    @property
    def log_append_time(self) -> bool:
        return bool(self.attributes & TIMESTAMP_TYPE_FLAG)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` is the time from which the cleaner may drop this batch's
        tombstones or marker (KIP-534).
        """
        return bool(self.attributes & DELETE_HORIZON_FLAG)


_new_header: Final = tuple.__new__


def parse_header(buf: Buf, pos: int = 0, expected_magic: int = MAGIC) -> BatchHeader:
    """The header at `pos`; its batch may reach beyond the end of `buf`. Another magic is expected
    of what a log has encrypted.
    """
    if len(buf) - pos < HEADER_SIZE:
        raise CorruptRecord(
            f"a batch header takes {HEADER_SIZE} bytes, at byte {pos} are only {len(buf) - pos}"
        )
    header = _new_header(BatchHeader, _unpack_header(buf, pos))
    if header.magic != expected_magic:
        raise CorruptRecord(
            f"batch at byte {pos} has magic {header.magic}; only {expected_magic} is accepted"
        )
    if header.length < _LENGTH_MIN:
        raise CorruptRecord(f"batch at byte {pos} claims the impossible length {header.length}")
    return header


def check_batch(buf: Buf, pos: int = 0) -> BatchHeader:
    """The header at `pos`, after checking that the batch lies whole in `buf` and its CRC is
    right.
    """
    available = len(buf)
    if available - pos < HEADER_SIZE:
        return parse_header(buf, pos)  # which says what is wrong
    header = _new_header(BatchHeader, _unpack_header(buf, pos))
    length = header[1]
    if header[3] != MAGIC or length < _LENGTH_MIN:
        return parse_header(buf, pos)
    end = pos + length + LOG_OVERHEAD
    if end > available:
        raise CorruptRecord(
            f"batch at byte {pos} takes {header.size} bytes, only {len(buf) - pos} are there"
        )
    crc = crc32c(memoryview(buf)[pos + CRC_START : end])
    if crc != header[4]:
        raise CorruptRecord(
            f"batch at byte {pos} (offset {header.base_offset}): "
            f"CRC is {crc:#010x}, its header says {header.crc:#010x}"
        )
    return header


def check_batches(buf: Buf) -> list[tuple[int, BatchHeader]]:
    """Position and header of every batch, each checked; together they must fill `buf` exactly."""
    view = memoryview(buf)
    found: list[tuple[int, BatchHeader]] = []
    pos, end = 0, len(view)
    while pos < end:
        header = check_batch(view, pos)
        found.append((pos, header))
        pos += header.length + LOG_OVERHEAD
    return found


def check_producer_batch(header: BatchHeader, *, control_allowed: bool = False) -> None:
    """Refuse, with `ApiError`, a batch whose header no correct producer could have written."""
    attributes = header.attributes
    count = header.record_count
    if count <= 0 or header.last_offset_delta != count - 1:
        raise _invalid(
            f"{count} records with a last offset delta of {header.last_offset_delta}; "
            f"a producer's batch holds n > 0 records with offset deltas 0 to n - 1"
        )
    if header.base_offset:
        raise _invalid(f"a producer's batch begins at offset 0, not {header.base_offset}")
    if attributes & ~COMPRESSION_MASK:
        _check_flags(header, control_allowed)
    if attributes & COMPRESSION_MASK:
        if attributes & COMPRESSION_MASK >= len(_COMPRESSIONS):
            raise ApiError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"no compression has id {attributes & COMPRESSION_MASK}",
            )
    elif header.length - _LENGTH_MIN < count * RECORD_BYTES_MIN:
        raise _invalid(f"{count} records cannot lie in {header.length - _LENGTH_MIN} bytes")
    if header.producer_id >= 0:
        if header.producer_epoch < 0 or (header.base_sequence < 0 and not header.is_control):
            raise _invalid(
                f"producer id {header.producer_id} with epoch {header.producer_epoch} and "
                f"sequence {header.base_sequence}; an idempotent producer sends both from 0 up"
            )
    elif attributes & TRANSACTIONAL_FLAG:
        raise _invalid("a transactional batch without a producer id")


def check_record_lengths(batch: Buf, count: int) -> None:
    """Walk an uncompressed batch from record to record: `count` of them must fill it exactly."""
    pos, end, found = HEADER_SIZE, len(batch), 0
    try:
        while pos < end and found <= count:
            byte = batch[pos]
            pos += 1
            size, shift = byte & 0x7F, 7
            while byte > 0x7F and shift < _VARINT_BITS_MAX:
                byte = batch[pos]
                pos += 1
                size |= (byte & 0x7F) << shift
                shift += 7
            if size & 1 or size < 2 * (RECORD_BYTES_MIN - 1):
                raise CorruptRecord(f"record {found} of the batch has an impossible length")
            pos += size >> 1  # lengths are zigzag varints, and this one is not negative
            found += 1
    except IndexError:
        raise CorruptRecord("the last record of the batch is cut off") from None
    if found != count or pos != end:
        raise CorruptRecord(f"the batch announces {count} records, its bytes hold another number")


def _check_flags(header: BatchHeader, control_allowed: bool) -> None:
    attributes = header.attributes
    if attributes & ~_ATTRIBUTES_KNOWN or attributes & DELETE_HORIZON_FLAG:
        raise _invalid(
            f"attributes {attributes & 0xFFFF:#06x} have bits set that no producer may set"
        )
    if attributes & CONTROL_FLAG and not control_allowed:
        raise _invalid("control batches are written by the broker, never by a client")
    if attributes & TIMESTAMP_TYPE_FLAG and not control_allowed:
        raise ApiError(
            ErrorCode.INVALID_TIMESTAMP,
            "a producer must not set the timestamp type to LogAppendTime; "
            "set message.timestamp.type of the topic",
        )


def _invalid(what: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, what)


def rewrite_header(
    buf: bytearray | memoryview,
    pos: int = 0,
    *,
    attributes: int | None = None,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    producer_epoch: int | None = None,
) -> BatchHeader:
    """Change fields inside the CRC of the whole batch at `pos` and recompute it."""
    old = parse_header(buf, pos)
    _INSIDE_CRC.pack_into(
        buf,
        pos + CRC_START,
        old.attributes if attributes is None else attributes,
        old.last_offset_delta,
        old.base_timestamp if base_timestamp is None else base_timestamp,
        old.max_timestamp if max_timestamp is None else max_timestamp,
        old.producer_id,
        old.producer_epoch if producer_epoch is None else producer_epoch,
        old.base_sequence,
        old.record_count,
    )
    _seal(buf, pos, old.size)
    return parse_header(buf, pos)


def assemble(header: BatchHeader, body: Buf) -> bytes:
    """A batch of `header`'s fields and `body`; length, magic and CRC are computed, not taken
    over.
    """
    out = bytearray(HEADER_SIZE + len(body))
    _HEADER.pack_into(
        out, 0, header.base_offset, len(out) - LOG_OVERHEAD, header[2], MAGIC, 0, *header[5:]
    )
    out[HEADER_SIZE:] = body
    _seal(out, 0, len(out))
    return bytes(out)


def _seal(buf: bytearray | memoryview, pos: int, size: int) -> None:
    _CRC.pack_into(buf, pos + CRC_START - 4, crc32c(memoryview(buf)[pos + CRC_START : pos + size]))
