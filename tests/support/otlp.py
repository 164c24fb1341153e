"""Writes OpenTelemetry's `MetricsData`, also such as no client would write."""

from __future__ import annotations

import struct
from typing import NamedTuple

DELTA, CUMULATIVE = 1, 2


class Point(NamedTuple):
    value: float
    attributes: tuple[tuple[str, str], ...] = ()


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def of_bytes(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def of_number(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def of_double(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


def of_int64(number: int, value: int) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<q", value)


def attribute(name: str, value: str) -> bytes:
    return of_bytes(1, name.encode()) + of_bytes(2, of_bytes(1, value.encode()))


def point(given: Point) -> bytes:
    value = given.value
    number = of_int64(6, value) if isinstance(value, int) else of_double(4, value)
    # Times and flags are there too, as clients send them.
    rest = of_int64(2, 1) + of_int64(3, 2) + of_number(8, 0)
    return rest + number + b"".join(of_bytes(7, attribute(*one)) for one in given.attributes)


def gauge(name: str, *points: Point) -> bytes:
    """A metric."""
    inside = b"".join(of_bytes(1, point(one)) for one in points)
    return of_bytes(1, name.encode()) + of_bytes(2, b"what") + of_bytes(5, inside)


def total(name: str, *points: Point, temporality: int = DELTA, grows: bool = True) -> bytes:
    """A metric that is a sum; what it is comes behind its points."""
    inside = b"".join(of_bytes(1, point(one)) for one in points)
    inside += of_number(2, temporality) + of_number(3, int(grows))
    return of_bytes(1, name.encode()) + of_bytes(7, inside)


def metrics_data(*metrics: bytes) -> bytes:
    scope = of_bytes(1, of_bytes(1, b"scope")) + b"".join(of_bytes(2, one) for one in metrics)
    resource = of_bytes(1, attribute("group_id", "g"))
    return of_bytes(1, of_bytes(1, resource) + of_bytes(2, scope))
