"""The one walk over records that compaction spends its time on.

Duty: keys, offset deltas, timestamp deltas and bounds of the records in an unpacked batch body,
as columns, so that what follows (filling a map, deciding what stays) runs over lists in C. Values
and headers are hopped over.

Invariants: every record lies inside the body, every key inside its record, offset deltas rise
strictly and the last record ends with the body; anything else raises `CorruptRecord`.

Limits: a key of more than 15 bytes is represented by its 16-byte BLAKE2b digest, shorter ones by
themselves.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from penstock.base.errors import CorruptRecord
from penstock.wire.records import BatchHeader, decompressed_body

_PLAIN_KEY_BYTES_MAX = 15
_LONGEST_PLAIN = _PLAIN_KEY_BYTES_MAX << 1
_NULL = 1
"""The zigzag form of length -1."""
_VARINT_BITS_MAX = 70


class ScannedRecords(NamedTuple):
    """Columns with one entry per record, and the positions of the special ones."""

    keys: list[bytes | None]
    offset_deltas: list[int]
    timestamps_zigzag: list[int]
    """Timestamp deltas as they lie there; few callers need them decoded."""
    bounds: list[int]
    """Record i is `body[bounds[i]:bounds[i + 1]]`."""
    tombstones: list[int]
    keyless: list[int]


def scan_batch(header: BatchHeader, batch: bytes) -> tuple[bytes, ScannedRecords]:
    """The unpacked body of a batch and the columns of its records."""
    body = decompressed_body(batch, header)
    try:
        scan = _scan(body, header.record_count)
    except IndexError as e:
        raise _corrupt(header, "a record ends before its last field") from e
    except CorruptRecord as e:
        raise _corrupt(header, str(e)) from e
    if scan.bounds[-1] != len(body):
        raise _corrupt(header, f"{len(body)} bytes of records end at byte {scan.bounds[-1]}")
    if scan.offset_deltas and scan.offset_deltas[-1] > header.last_offset_delta:
        raise _corrupt(header, f"offset delta {scan.offset_deltas[-1]} is beyond the last one")
    return body, scan


def _corrupt(header: BatchHeader, what: str) -> CorruptRecord:
    return CorruptRecord(f"batch at offset {header.base_offset}: {what}")


def _scan(body: bytes, count: int) -> ScannedRecords:
    # Varints of one and two bytes are decoded in line: a call for each would double the time.
    keys: list[bytes | None] = []
    deltas: list[int] = []
    stamps: list[int] = []
    bounds = [0]
    tombstones: list[int] = []
    keyless: list[int] = []
    end, previous = 0, -1
    for i in range(count):
        size = body[end]
        pos = end + 1
        if size > 0x7F:
            byte = body[pos]
            pos += 1
            size += (byte << 7) - 0x80
            if byte > 0x7F:
                size, pos = _longer_varint(body, pos, size)
        end = pos + (size >> 1)
        stamp = body[pos + 1]
        pos += 2
        if stamp > 0x7F:
            byte = body[pos]
            pos += 1
            stamp += (byte << 7) - 0x80
            if byte > 0x7F:
                stamp, pos = _longer_varint(body, pos, stamp)
        delta = body[pos]
        pos += 1
        if delta > 0x7F:
            byte = body[pos]
            pos += 1
            delta += (byte << 7) - 0x80
            if byte > 0x7F:
                delta, pos = _longer_varint(body, pos, delta)
        key_size = body[pos]
        pos += 1
        if key_size > 0x7F:
            byte = body[pos]
            pos += 1
            key_size += (byte << 7) - 0x80
            if byte > 0x7F:
                key_size, pos = _longer_varint(body, pos, key_size)
        key: bytes | None
        if key_size & 1:
            key = None
            keyless.append(i)
            if key_size != _NULL:
                raise CorruptRecord(f"record {i} has a key of negative length")
        else:
            start = pos
            pos += key_size >> 1
            key = body[start:pos]
            if key_size > _LONGEST_PLAIN:
                key = blake2b(key, digest_size=16).digest()
        if body[pos] == _NULL:
            tombstones.append(i)
        if pos >= end or (size | delta) & 1 or delta <= previous:
            raise CorruptRecord(f"record {i} is malformed")
        previous = delta
        keys.append(key)
        deltas.append(delta >> 1)
        stamps.append(stamp)
        bounds.append(end)
    return ScannedRecords(keys, deltas, stamps, bounds, tombstones, keyless)


def _longer_varint(body: bytes, pos: int, two_bytes: int) -> tuple[int, int]:
    """The raw value of a varint of more than two bytes, and the position after it.

    `two_bytes` holds the first two, the continuation bit of the second included.
    """
    value, shift = two_bytes - (0x80 << 7), 14
    while True:
        byte = body[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7
        if shift >= _VARINT_BITS_MAX:
            raise CorruptRecord("a varint of more than 10 bytes")
