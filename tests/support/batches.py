"""Record batches built and read by hand, good and bad, with no code of Penstock's.

Only what the tests need: magic 2, uncompressed, plus the old message formats 0 and 1.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_AT = 17
CRC_FROM = 21


class Rec(NamedTuple):
    """One record; `timestamp` is absolute."""

    value: bytes | None = b"v"
    key: bytes | None = None
    timestamp: int = 1_700_000_000_000
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def varint(value: int) -> bytes:
    """A zig-zag varint of up to 64 bits."""
    left = (value << 1) ^ (value >> 63)
    left &= (1 << 64) - 1
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _field(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(rec: Rec, offset_delta: int, base_timestamp: int) -> bytes:
    """One record as it lies in a batch."""
    body = b"\0" + varint(rec.timestamp - base_timestamp) + varint(offset_delta)
    body += _field(rec.key) + _field(rec.value) + varint(len(rec.headers))
    for name, value in rec.headers:
        body += _field(name) + _field(value)
    return varint(len(body)) + body


def batch(records: Iterable[Rec | bytes], **fields: Any) -> bytes:
    """A batch of records (bytes stand for a record's value); `fields` override header fields.

    `payload` overrides the records' bytes; `crc` the checksum, which is otherwise right.
    """
    recs = [item if isinstance(item, Rec) else Rec(item) for item in records]
    base = fields.get("base_timestamp", recs[0].timestamp if recs else 0)
    newest = max((rec.timestamp for rec in recs), default=base)
    payload = fields.get("payload")
    if payload is None:
        payload = b"".join(record(rec, i, base) for i, rec in enumerate(recs))
    head = HEADER.pack(
        fields.get("base_offset", 0),
        fields.get("length", HEADER.size - 12 + len(payload)),
        fields.get("partition_leader_epoch", -1),
        fields.get("magic", 2),
        0,
        fields.get("attributes", 0),
        fields.get("last_offset_delta", len(recs) - 1),
        base,
        fields.get("max_timestamp", newest),
        fields.get("producer_id", -1),
        fields.get("producer_epoch", -1),
        fields.get("base_sequence", -1),
        fields.get("count", len(recs)),
    )
    out = bytearray(head + payload)
    checksum = fields.get("crc")
    if checksum is None:
        checksum = crc32c.crc32c(out[CRC_FROM:])
    struct.pack_into(">I", out, CRC_AT, checksum)
    return bytes(out)


def old_message(value: bytes, magic: int) -> bytes:
    """A message set of one message in format 0 or 1."""
    body = struct.pack(">bb", magic, 0)
    if magic == 1:
        body += struct.pack(">q", 1_700_000_000_000)
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


class Head(NamedTuple):
    """The header of a batch, and where it ends."""

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
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta


def heads(data: bytes | memoryview | None) -> list[Head]:
    """The headers of the whole batches in `data`; each one's checksum must be right."""
    found: list[Head] = []
    at, data = 0, bytes(data or b"")
    while at + HEADER.size <= len(data):
        head = Head(*HEADER.unpack_from(data, at))
        end = at + 12 + head.length
        if end > len(data):
            break
        assert crc32c.crc32c(data[at + CRC_FROM : end]) == head.crc, "a batch with a wrong checksum"
        found.append(head)
        at = end
    return found
