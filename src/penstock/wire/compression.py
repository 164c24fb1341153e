"""The four compression codecs of record batches, with bounded decompression.

Duty: `compress` and `decompress` of the records section of a batch, in the framings that Kafka's
clients write and read: gzip (RFC 1952, several members allowed), snappy (xerial's framing as the
Java client writes it, and one plain block as other clients do), LZ4 frames (independent blocks),
zstd frames.

Invariants: `decompress` unpacks into a buffer that never exceeds `max_bytes`, whatever the input
claims about its own size; garbage, truncation and trailing bytes raise `CorruptRecord`.

Limits: a call holds the interpreter's thread for as long as it lasts. The result is copied once,
so a success costs up to twice its size while it returns; a refusal never costs more than
`max_bytes`.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import TypeAlias

import cramjam

from penstock.base.errors import CorruptRecord

Buf: TypeAlias = bytes | bytearray | memoryview


class Compression(IntEnum):
    """Kafka's codec ids, as in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


LEVELS: dict[Compression, tuple[int, int, int]] = {
    Compression.GZIP: (1, 9, 6),
    Compression.LZ4: (1, 17, 9),
    Compression.ZSTD: (-131072, 22, 3),
}
"""Lowest, highest and default level of the codecs that have levels. gzip also takes -1: its
default.
"""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024
_INT32 = Struct(">i")

_FIRST_BUFFER_BYTES = 64 * 1024
_BUFFER_GROWTH = 4
_OUTPUT_FULL = "failed to write whole buffer"
"""What the codecs say when the output buffer, and not the input, is at fault."""

_RATIO_MAX = {
    Compression.GZIP: 1032,
    Compression.SNAPPY: 64,
    Compression.LZ4: 255,
    Compression.ZSTD: 128 * 1024 // 3,
}
"""No input of n bytes unpacks to more than about n times this, so a larger claim is not believed.
"""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SIZE_FIELD_BYTES = (0, 2, 4, 8)
_ZSTD_DICT_FIELD_BYTES = (0, 1, 2, 4)
_ZSTD_WINDOW_BYTES_MAX = 8 * 1024 * 1024
"""The window that every zstd decoder must support; a larger one is allowed only up to
`max_bytes`.
"""


def compress(kind: Compression, data: Buf, level: int | None = None) -> bytes:
    """`data` packed by `kind`; `level` is the codec's own and must lie in its `LEVELS`."""
    if kind is Compression.NONE:
        return bytes(data)
    if kind is Compression.SNAPPY:
        return _compress_snappy(data)
    level = _checked_level(kind, level)
    if kind is Compression.GZIP:
        return bytes(cramjam.gzip.compress(data, level))
    if kind is Compression.ZSTD:
        return bytes(cramjam.zstd.compress(data, level))
    # Kafka's default level means LZ4's fast mode; any other asks for its high-compression mode.
    # The Java client reads independent blocks only, so the one-call form (linked blocks) will not
    # do.
    packer = cramjam.lz4.Compressor(
        level=0 if level == LEVELS[Compression.LZ4][2] else level,
        content_checksum=False,
        block_linked=False,
    )
    packer.compress(bytes(data))
    return bytes(packer.finish())


def decompress(kind: Compression, data: Buf, *, max_bytes: int) -> bytes:
    """`data` unpacked, or `CorruptRecord` when it is garbage or holds more than `max_bytes`."""
    if kind is Compression.NONE:
        if len(data) > max_bytes:
            raise _too_large(kind, len(data), max_bytes)
        return bytes(data)
    try:
        if kind is Compression.SNAPPY:
            return _decompress_snappy(data, max_bytes)
        return _decompress_growing(kind, data, max_bytes)
    except cramjam.DecompressionError as e:
        raise CorruptRecord(f"{len(data)} bytes are not valid {kind.name} data: {e}") from e


def _checked_level(kind: Compression, level: int | None) -> int:
    low, high, default = LEVELS[kind]
    if level is None or (kind is Compression.GZIP and level == -1):
        return default
    if not low <= level <= high:
        raise ValueError(f"{kind.name} level {level} is outside {low}..{high}")
    return level


def _too_large(kind: Compression, packed: int, max_bytes: int) -> CorruptRecord:
    return CorruptRecord(
        f"{packed} bytes of {kind.name} data unpack to more than the {max_bytes} bytes allowed"
    )


def _decompress_growing(kind: Compression, data: Buf, max_bytes: int) -> bytes:
    if kind is Compression.ZSTD:
        unpack, hint = cramjam.zstd.decompress_into, _zstd_size_hint(data, max_bytes)
    elif kind is Compression.LZ4:
        unpack, hint = cramjam.lz4.decompress_into, 0
    else:
        unpack, hint = cramjam.gzip.decompress_into, int.from_bytes(data[-4:], "little")
    believable = len(data) * _RATIO_MAX[kind]
    if not 0 < hint <= believable:
        hint = max(_FIRST_BUFFER_BYTES, len(data) * _BUFFER_GROWTH)
    size = min(hint, max_bytes)
    while True:
        out = bytearray(size)
        try:
            filled: int = unpack(data, out)
        except cramjam.DecompressionError as e:
            if str(e) != _OUTPUT_FULL:
                raise
            if size >= max_bytes:
                raise _too_large(kind, len(data), max_bytes) from e
            size = min(size * _BUFFER_GROWTH, max_bytes)
            del out
        else:
            return bytes(memoryview(out)[:filled])


def _zstd_size_hint(data: Buf, max_bytes: int) -> int:
    """The content size that the first frame declares, 0 if none; refuses windows out of
    proportion.
    """
    if len(data) < 6 or data[:4] != _ZSTD_MAGIC:
        return 0
    descriptor = data[4]
    single_segment = descriptor & 0x20
    pos = 5
    if not single_segment:
        base = 1 << (10 + (data[5] >> 3))
        window = base + (base >> 3) * (data[5] & 7)
        if window > max(max_bytes, _ZSTD_WINDOW_BYTES_MAX):
            raise CorruptRecord(
                f"a zstd frame asks for a window of {window} bytes; at most {max_bytes} are allowed"
            )
        pos = 6
    pos += _ZSTD_DICT_FIELD_BYTES[descriptor & 3]
    width = _ZSTD_SIZE_FIELD_BYTES[descriptor >> 6] or (1 if single_segment else 0)
    size = int.from_bytes(data[pos : pos + width], "little")
    return size + 256 if width == 2 else size


def _compress_snappy(data: Buf) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buf, max_bytes: int) -> bytes:
    view = memoryview(data)
    if view[:8] != _XERIAL_MAGIC:
        return _snappy_block(view, len(data), max_bytes)
    parts: list[bytes] = []
    left, pos = max_bytes, 16
    while pos < len(view):
        if view[pos : pos + 8] == _XERIAL_MAGIC:
            pos += 16
            continue
        if pos + 4 > len(view):
            raise CorruptRecord(f"SNAPPY data ends inside a block length at byte {pos}")
        (size,) = _INT32.unpack_from(view, pos)
        pos += 4
        if size < 0 or pos + size > len(view):
            raise CorruptRecord(f"a SNAPPY block of {size} bytes at byte {pos} leaves its data")
        part = _snappy_block(view[pos : pos + size], len(data), left)
        parts.append(part)
        left -= len(part)
        pos += size
    return b"".join(parts)


def _snappy_block(block: memoryview, packed: int, left: int) -> bytes:
    kind = Compression.SNAPPY
    size: int = cramjam.snappy.decompress_raw_len(block)
    if size > left:
        raise _too_large(kind, packed, left)
    if size > len(block) * _RATIO_MAX[kind]:
        raise CorruptRecord(f"a SNAPPY block of {len(block)} bytes claims to hold {size}")
    out = bytearray(size)
    filled = cramjam.snappy.decompress_raw_into(block, out)
    if filled != size:
        raise CorruptRecord(f"a SNAPPY block holds {filled} bytes where it claims {size}")
    return bytes(out)
