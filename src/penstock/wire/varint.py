"""Unsigned varints: seven bits per byte, low bits first, at most five bytes.

Values are below 2**32, as everything that the protocol counts this way is an int32.
"""

from __future__ import annotations

from typing import Final, TypeAlias

Buffer: TypeAlias = bytes | memoryview

_BYTES_MAX: Final = 5
_ONE_BYTE: Final = tuple(bytes((n,)) for n in range(0x80))


def read_unsigned_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    """The number at `pos` and the position after it; ValueError or IndexError if none is there."""
    byte = buf[pos]
    if byte < 0x80:
        return byte, pos + 1
    value = byte & 0x7F
    for shift in range(7, 7 * _BYTES_MAX, 7):
        pos += 1
        byte = buf[pos]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFF_FFFF:
                raise ValueError(f"the varint {value} does not fit into 32 bits")
            return value, pos + 1
    raise ValueError(f"a varint is longer than {_BYTES_MAX} bytes")


def unsigned_varint(value: int) -> bytes:
    """The bytes of `value`, which is between 0 and 2**32 - 1."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    if not 0 <= value <= 0xFFFF_FFFF:
        raise ValueError(f"{value} does not fit into an unsigned varint of 32 bits")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
