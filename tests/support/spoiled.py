"""Compressed batches that are wrong inside, each with a right checksum and a right header.

Like `batches` they are made with no code of Penstock's: the codecs are called directly.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import cramjam

from support.batches import Rec, batch, record, varint

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
T0 = Rec().timestamp
KEYED = Rec(b"value", b"key")


def lz4_frame(data: bytes) -> bytes:
    """Independent blocks, as the Java client wants them."""
    packer = cramjam.lz4.Compressor(block_linked=False, content_checksum=False)
    packer.compress(data)
    return bytes(packer.finish())


def xerial(data: bytes) -> bytes:
    """Snappy in the framing of the Java client."""
    out = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    for at in range(0, len(data), 32768):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + 32768]))
        out += struct.pack(">i", len(block)) + block
    return out


PACK: dict[int, Callable[[bytes], bytes]] = {
    0: bytes,
    GZIP: lambda data: bytes(cramjam.gzip.compress(data)),
    SNAPPY: xerial,
    LZ4: lz4_frame,
    ZSTD: lambda data: bytes(cramjam.zstd.compress(data)),
}


def packed(inside: bytes, codec: int, count: int, **fields: Any) -> bytes:
    """A batch that claims `count` records and holds `inside`."""
    return raw_packed(PACK[codec](inside), codec, count, **fields)


def raw_packed(payload: bytes, codec: int, count: int, **fields: Any) -> bytes:
    """The same with a compressed part that is given as it is."""
    attributes = fields.pop("attributes", 0) | codec
    counts = {"count": count, "last_offset_delta": count - 1, "attributes": attributes}
    return batch([Rec()] * max(count, 1), payload=payload, **(counts | fields))


def records(count: int, rec: Rec = KEYED) -> bytes:
    return b"".join(record(rec, i, T0) for i in range(count))


def one(fields: bytes, length: int | None = None) -> bytes:
    """A record of these fields (its attributes first), with a length that may be a lie."""
    return varint(len(fields) if length is None else length) + fields


HEAD = b"\0" + varint(0) + varint(0)  # attributes, timestamp delta, offset delta of the first
TINY = varint(-1) + varint(1) + b"v" + varint(0)  # no key, a value of one byte, no headers

INSIDES: dict[str, tuple[bytes, int]] = {
    "right": (records(3), 3),
    "right, headers": (records(2, Rec(headers=((b"h", b"1"), (b"i", None)))), 2),
    "one more counted": (records(3), 4),
    "many more counted": (records(3), 300),
    "one less counted": (records(3), 2),
    "nothing inside": (b"", 1),
    "trailing byte": (records(2) + b"\0", 2),
    "trailing rubbish": (records(2) + b"\xff" * 20, 2),
    "rubbish": (b"\xff" * 40, 1),
    "zeros": (bytes(40), 1),
    "length too large": (one(HEAD + TINY, 50), 1),
    "length one too large": (one(HEAD + TINY, len(HEAD + TINY) + 1), 1),
    "length one too small": (one(HEAD + TINY, len(HEAD + TINY) - 1), 1),
    "length negative": (one(HEAD + TINY, -5), 1),
    "lengths that make up for each other": (
        one(HEAD + TINY, len(HEAD + TINY) + 1)
        + one(b"\0" + varint(0) + varint(1) + TINY, len(HEAD + TINY) - 1),
        2,
    ),
    "offset delta repeated": (record(Rec(), 0, T0) * 2, 2),
    "offset delta skipped": (record(Rec(), 0, T0) + record(Rec(), 2, T0), 2),
    "offset deltas swapped": (record(Rec(), 1, T0) + record(Rec(), 0, T0), 2),
    "offset delta negative": (record(Rec(), -1, T0), 1),
    "varint without an end": (one(b"\0" + b"\xff" * 11 + TINY), 1),
    "offset varint of six bytes": (one(b"\0\0" + b"\x80\x80\x80\x80\x80\x00" + TINY), 1),
    "key reaches out": (one(HEAD + varint(500) + b"k" + varint(-1) + varint(0)), 1),
    "key of -2 bytes": (one(HEAD + varint(-2) + varint(1) + b"v" + varint(0)), 1),
    "value reaches out": (one(HEAD + varint(-1) + varint(500) + b"v" + varint(0)), 1),
    "value of -7 bytes": (one(HEAD + varint(-1) + varint(-7) + varint(0)), 1),
    "header count negative": (one(HEAD + TINY[:-1] + varint(-1)), 1),
    "header count too large": (one(HEAD + TINY[:-1] + varint(1000)), 1),
    "header count one too large": (one(HEAD + TINY[:-1] + varint(2) + b"\x02h\x02v"), 1),
    "header without a key": (one(HEAD + TINY[:-1] + varint(1) + varint(-1) + b"\x02v"), 1),
    "header value reaches out": (one(HEAD + TINY[:-1] + varint(1) + b"\x02h" + varint(99)), 1),
    "header value of -2 bytes": (one(HEAD + TINY[:-1] + varint(1) + b"\x02h" + varint(-2)), 1),
    "record attributes": (one(b"\x07" + HEAD[1:] + TINY), 1),
    "record attributes like a varint": (one(b"\x80" + HEAD[1:] + TINY), 1),
}
"""What the compressed part holds, and how many records the header claims."""
