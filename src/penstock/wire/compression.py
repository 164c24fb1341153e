"""The four compression codecs of record batches, with bounded decompression.

Duty: `compress` and `decompress` of the records section of a batch, in the framings that Kafka's
clients write and read: gzip (RFC 1952, several members allowed), snappy (xerial's framing as the
Java client writes it, and one plain block as other clients do), LZ4 frames (independent blocks),
zstd frames.

Invariants: `unpack` and `decompress` fill a buffer that never exceeds `max_bytes`, whatever the
input claims about its own size; garbage, truncation and trailing bytes raise `CorruptRecord`, and
what holds more than `max_bytes` its subclass `UnpacksTooLarge`.

Limits: a call occupies its thread for as long as it lasts, but the codecs let other threads run.
`decompress` copies the result once, so a success costs up to twice its size while it returns;
`unpack` does not, and a refusal never costs more than `max_bytes`.
"""

from __future__ import annotations

from enum import IntEnum
from mmap import mmap
from struct import Struct
from typing import TypeAlias

import cramjam

from penstock.base.errors import CorruptRecord

Buf: TypeAlias = bytes | bytearray | memoryview


class UnpacksTooLarge(CorruptRecord):
    """The data may be right, but holds more bytes than the caller allows."""


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
_UINT32_LE = Struct("<I")

_FIRST_BUFFER_BYTES = 64 * 1024
_BUFFER_GROWTH = 4
_CLEARED_BYTES_MAX = 16 * 1024 * 1024
"""A larger buffer is mapped: the system clears it page by page as the codec fills it, where a
bytearray is cleared at once and no other thread runs meanwhile.
"""
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
_ZSTD_REPEATED, _ZSTD_COMPRESSED = 1, 2
_ZSTD_BLOCK_BYTES_MAX = 128 * 1024
_ZSTD_WINDOW_BYTES_MAX = 8 * 1024 * 1024
"""The window that every zstd decoder must support; a larger one is allowed only up to
`max_bytes`.
"""

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_HEADER_BYTES_MIN = 7
_LZ4_VERSION, _LZ4_INDEPENDENT, _LZ4_BLOCK_CHECKSUM = 0x40, 0x20, 0x10
_LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM = 0x08, 0x04
_LZ4_FLAGS_FIXED = 0xE3
_LZ4_STORED = 0x8000_0000
_LZ4_BLOCK_BYTES = (0, 0, 0, 0, 64 * 1024, 256 * 1024, 1024 * 1024, 4 * 1024 * 1024)

_BLOCKS_COUNTED_MAX = 1024
"""Blocks whose headers are looked at to learn how much memory a stream needs."""


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
    return bytes(unpack(kind, data, max_bytes=max_bytes))


def unpack(kind: Compression, data: Buf, *, max_bytes: int) -> memoryview:
    """`decompress` without the copy: a view of `data` itself, or of a buffer of its own."""
    if kind is Compression.NONE:
        if len(data) > max_bytes:
            raise _too_large(kind, len(data), max_bytes)
        return memoryview(data)
    try:
        if kind is Compression.SNAPPY:
            return _unpack_snappy(data, max_bytes)
        return _unpack_growing(kind, data, max_bytes)
    except cramjam.DecompressionError as e:
        raise CorruptRecord(f"{len(data)} bytes are not valid {kind.name} data: {e}") from e


def check_framing(kind: Compression, data: Buf) -> None:
    """Refuse what unpacks here but not in every client.

    Java's reads LZ4 only as one frame of independent blocks without a dictionary, and looks at the
    version in xerial's header.
    """
    if kind is Compression.SNAPPY and data[:8] == _XERIAL_MAGIC:
        if len(data) < 16 or _INT32.unpack_from(data, 12)[0] < 1:
            raise CorruptRecord("SNAPPY data of a version that Java clients refuse")
    elif kind is Compression.LZ4:
        if len(data) < _LZ4_HEADER_BYTES_MIN or data[:4] != _LZ4_MAGIC:
            raise CorruptRecord("LZ4 data that does not begin with a frame")
        if data[4] & _LZ4_FLAGS_FIXED != _LZ4_VERSION | _LZ4_INDEPENDENT:
            raise CorruptRecord("an LZ4 frame with linked blocks or a dictionary")
        end, _ = _lz4_blocks(data, len(data))
        if end != len(data):
            raise CorruptRecord("an LZ4 frame that is cut off, or that something follows")


def _checked_level(kind: Compression, level: int | None) -> int:
    low, high, default = LEVELS[kind]
    if level is None or (kind is Compression.GZIP and level == -1):
        return default
    if not low <= level <= high:
        raise ValueError(f"{kind.name} level {level} is outside {low}..{high}")
    return level


def _too_large(kind: Compression, packed: int, max_bytes: int) -> UnpacksTooLarge:
    return UnpacksTooLarge(
        f"{packed} bytes of {kind.name} data unpack to more than the {max_bytes} bytes allowed"
    )


def _unpack_growing(kind: Compression, data: Buf, max_bytes: int) -> memoryview:
    if kind is Compression.ZSTD:
        unpack_into, hint = cramjam.zstd.decompress_into, _zstd_size_hint(data, max_bytes)
    elif kind is Compression.LZ4:
        unpack_into, (_, hint) = cramjam.lz4.decompress_into, _lz4_blocks(data, _BLOCKS_COUNTED_MAX)
    else:
        unpack_into, hint = cramjam.gzip.decompress_into, int.from_bytes(data[-4:], "little")
    believable = len(data) * _RATIO_MAX[kind]
    if kind is Compression.LZ4:
        hint = min(hint, believable)  # a frame names only the size that its blocks may have
    if not 0 < hint <= believable:
        hint = max(_FIRST_BUFFER_BYTES, len(data) * _BUFFER_GROWTH)
    size = min(hint, max_bytes)
    while True:
        out = _room(size)
        try:
            filled: int = unpack_into(data, out)
        except cramjam.DecompressionError as e:
            if str(e) != _OUTPUT_FULL:
                raise
            if size >= max_bytes:
                raise _too_large(kind, len(data), max_bytes) from e
            size = min(size * _BUFFER_GROWTH, max_bytes)
            del out
        else:
            return out[:filled]


def _room(size: int) -> memoryview:
    return memoryview(bytearray(size) if size <= _CLEARED_BYTES_MAX else mmap(-1, size))


def _lz4_blocks(data: Buf, blocks_max: int) -> tuple[int, int]:
    """Where the first frame of `data` ends, and how many bytes its blocks hold at most.

    (0, 0) if that cannot be told: it is no frame, is cut off, or has more than `blocks_max` blocks.
    """
    if len(data) < _LZ4_HEADER_BYTES_MIN or data[:4] != _LZ4_MAGIC:
        return 0, 0
    flags = data[4]
    block_bytes = _LZ4_BLOCK_BYTES[data[5] >> 4 & 7]
    checksum_bytes = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    pos = _LZ4_HEADER_BYTES_MIN + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    bound = 0
    for _ in range(blocks_max):
        if pos + 4 > len(data):
            break
        (size,) = _UINT32_LE.unpack_from(data, pos)
        pos += 4
        if not size:
            return pos + (4 if flags & _LZ4_CONTENT_CHECKSUM else 0), bound
        bound += size & ~_LZ4_STORED if size & _LZ4_STORED else block_bytes
        pos += (size & ~_LZ4_STORED) + checksum_bytes
    return 0, 0


def _zstd_size_hint(data: Buf, max_bytes: int) -> int:
    """The content size that the first frame declares, or else what its blocks hold at most, 0 if
    that cannot be told; refuses windows out of proportion.
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
    if not width:
        return _zstd_blocks(data, pos)
    size = int.from_bytes(data[pos : pos + width], "little")
    size = size + 256 if width == 2 else size
    if size > max_bytes:
        raise _too_large(Compression.ZSTD, len(data), max_bytes)
    return size


def _zstd_blocks(data: Buf, pos: int) -> int:
    """How many bytes the blocks from `pos` on hold at most; 0 if that cannot be told."""
    bound = 0
    for _ in range(_BLOCKS_COUNTED_MAX):
        if pos + 3 > len(data):
            break
        head = int.from_bytes(data[pos : pos + 3], "little")
        kind, size = head >> 1 & 3, head >> 3
        bound += _ZSTD_BLOCK_BYTES_MAX if kind == _ZSTD_COMPRESSED else size
        pos += 3 + (1 if kind == _ZSTD_REPEATED else size)
        if head & 1:
            return bound
    return 0


def _compress_snappy(data: Buf) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _unpack_snappy(data: Buf, max_bytes: int) -> memoryview:
    view = memoryview(data)
    blocks = _xerial_blocks(view) if view[:8] == _XERIAL_MAGIC else [view]
    sizes = [_snappy_size(block) for block in blocks]
    if sum(sizes) > max_bytes:
        raise _too_large(Compression.SNAPPY, len(data), max_bytes)
    out = _room(sum(sizes))
    pos = 0
    for block, size in zip(blocks, sizes, strict=True):
        filled = cramjam.snappy.decompress_raw_into(block, out[pos : pos + size])
        if filled != size:
            raise CorruptRecord(f"a SNAPPY block holds {filled} bytes where it claims {size}")
        pos += size
    return out


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    blocks: list[memoryview] = []
    pos = 16
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
        blocks.append(view[pos : pos + size])
        pos += size
    return blocks


def _snappy_size(block: memoryview) -> int:
    size: int = cramjam.snappy.decompress_raw_len(block)
    if size > len(block) * _RATIO_MAX[Compression.SNAPPY]:
        raise CorruptRecord(f"a SNAPPY block of {len(block)} bytes claims to hold {size}")
    return size
