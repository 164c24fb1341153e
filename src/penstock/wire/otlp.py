"""OpenTelemetry's `MetricsData`, as clients push it (KIP-714), as far as it is shown.

Duty: the numbers of gauges and sums with their names and attributes. Histograms and summaries are
counted and not read; of resources and scopes, units and times nothing is kept.

It is protobuf from whoever may connect. Nothing here recurses; unknown fields are skipped; what is
malformed raises `CorruptRecord`. The levels that may be long are read in steps (`base.steps`), a
point is read at once, since it is bounded.

Limits: POINTS_MAX points of one push are read, and FIELDS_MAX fields of all its messages, which
takes the loop a fifth of a second in turns. A point with more than POINT_FIELDS_MAX fields or an
attribute with more than ATTRIBUTE_FIELDS_MAX is malformed. A metric whose name has more than
NAME_CHARACTERS_MAX characters and a point whose attributes have more than ATTRIBUTES_CHARACTERS_MAX
are ignored. What is ignored is counted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from penstock.base.errors import CorruptRecord
from penstock.base.steps import Steps

POINTS_MAX: Final = 5_000
FIELDS_MAX: Final = 100_000
POINT_FIELDS_MAX: Final = 64
ATTRIBUTE_FIELDS_MAX: Final = 8
NAME_CHARACTERS_MAX: Final = 200
ATTRIBUTES_CHARACTERS_MAX: Final = 500

_NAME: Final = re.compile(rf"[A-Za-z0-9_./\-]{{1,{NAME_CHARACTERS_MAX}}}")
_DOUBLE: Final = Struct("<d")
_INT64: Final = Struct("<q")
_VARINT_BYTES_MAX: Final = 10

# Kinds of fields on the wire.
_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
_FIXED_BYTES: Final = {_FIXED64: 8, _FIXED32: 4}

_DELTA: Final = 1
"""Of a sum: what came since the last push, not since the beginning."""

_Value: TypeAlias = int | bytes | memoryview
"""A varint, a number of fixed size, or what has a length."""


class Number(NamedTuple):
    """One point of a gauge or a sum."""

    metric: str
    attributes: str
    """`name=value`, in the order of names, with commas between."""
    value: float
    counts: bool = False
    """It is a sum that only grows."""
    delta: bool = False
    """It is to be added to what was pushed before."""


class Pushed:
    """What one push holds."""

    __slots__ = ("fields", "ignored", "numbers")

    def __init__(self) -> None:
        self.numbers: list[Number] = []
        self.ignored = 0
        """Metrics and points that are not shown."""
        self.fields = 0
        """Fields that were read."""


class _Enough(Exception):
    """There are more fields than are read."""


def read_metrics(data: memoryview) -> Steps[Pushed]:
    """The numbers in a `MetricsData`."""
    pushed = Pushed()
    try:
        for of_data, resource_metrics in _fields(data, pushed):
            yield
            if of_data == 1:
                yield from _resource_metrics(_message(resource_metrics), pushed)
    except _Enough:
        pushed.ignored += 1
    return pushed


def _resource_metrics(data: memoryview, pushed: Pushed) -> Steps[None]:
    for of_resource, scope_metrics in _fields(data, pushed):
        yield
        if of_resource != 2:
            continue
        for of_scope, metric in _fields(_message(scope_metrics), pushed):
            yield
            if of_scope == 2:
                yield from _metric(_message(metric), pushed)


def _metric(data: memoryview, pushed: Pushed) -> Steps[None]:
    name, gauge, total = "", None, None
    for number, value in _fields(data, pushed):
        yield
        if number == 1:
            name = _text(value)
        elif number == 5:
            gauge = _message(value)
        elif number == 7:
            total = _message(value)
    if not _NAME.fullmatch(name) or (gauge is None and total is None):
        pushed.ignored += 1
        return
    if gauge is not None:
        yield from _points(name, gauge, pushed)
    if total is not None:
        yield from _points(name, total, pushed)


def _points(name: str, data: memoryview, pushed: Pushed) -> Steps[None]:
    """The points of a gauge or a sum; a gauge has no temporality, and does not only grow."""
    points: list[memoryview] = []
    temporality = monotonic = 0
    for number, value in _fields(data, pushed):
        yield
        if number == 1:
            if len(pushed.numbers) + len(points) < POINTS_MAX:
                points.append(_message(value))
            else:
                pushed.ignored += 1
        elif number == 2:
            temporality = _number(value)
        elif number == 3:
            monotonic = _number(value)
    counts, delta = monotonic != 0, temporality == _DELTA
    for point in points:
        yield
        found = _point(point, pushed)
        if found is None:
            pushed.ignored += 1
        else:
            pushed.numbers.append(Number(name, *found, counts, delta))


def _point(data: memoryview, pushed: Pushed) -> tuple[str, float] | None:
    """Its attributes and its number; None where it has no number, or too much beside."""
    result: float | None = None
    attributes = {}
    for number, value in _fields(data, pushed, POINT_FIELDS_MAX):
        if number == 4:
            result = _unpacked(_DOUBLE, value)
        elif number == 6:
            result = _unpacked(_INT64, value)
        elif number == 7:
            name, text = _attribute(_message(value), pushed)
            attributes[name] = text
    if result is None or not math.isfinite(result):
        return None
    text = ",".join(f"{name}={attributes[name]}" for name in sorted(attributes))
    return None if len(text) > ATTRIBUTES_CHARACTERS_MAX else (text, result)


def _attribute(data: memoryview, pushed: Pushed) -> tuple[str, str]:
    name = text = ""
    for number, value in _fields(data, pushed, ATTRIBUTE_FIELDS_MAX):
        if number == 1:
            name = _text(value)
        elif number == 2:
            text = _any_value(_message(value), pushed)
    return name, text


def _any_value(data: memoryview, pushed: Pushed) -> str:
    """A text or a number as a text; empty for what is made of others."""
    text = ""
    for number, value in _fields(data, pushed, ATTRIBUTE_FIELDS_MAX):
        if number == 1:
            text = _text(value)
        elif number == 2:
            text = "true" if _number(value) else "false"
        elif number == 3:
            unsigned = _number(value)
            text = str(unsigned - (1 << 64) if unsigned >> 63 else unsigned)
        elif number == 4:
            text = str(_unpacked(_DOUBLE, value))
    return text


# -- protobuf ----------------------------------------------------------------------------------


def _fields(
    data: memoryview, pushed: Pushed, most: int = FIELDS_MAX
) -> Iterator[tuple[int, _Value]]:
    """The fields of a message: their numbers and values."""
    at, end = 0, len(data)
    while at < end:
        most -= 1
        pushed.fields += 1
        if pushed.fields > FIELDS_MAX:
            raise _Enough
        tag = data[at]
        # Nearly all are of one byte.
        tag, at = (tag, at + 1) if tag < 0x80 else _varint(data, at)
        kind = tag & 7
        value: _Value
        if kind == _VARINT:
            value, at = _varint(data, at)
        elif kind == _BYTES:
            size = data[at] if at < end else 0x80
            size, at = (size, at + 1) if size < 0x80 else _varint(data, at)
            value = data[at : at + size]
            at += size
        elif kind in _FIXED_BYTES:
            size = _FIXED_BYTES[kind]
            value = bytes(data[at : at + size])
            at += size
        else:
            raise CorruptRecord(f"metrics with a field of the unknown kind {kind}")
        if at > end or most < 0 or not tag >> 3:
            raise CorruptRecord("metrics with a field that leaves its message, or too many fields")
        yield tag >> 3, value


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """An unsigned number, and where it ends."""
    result = 0
    for shift, byte in enumerate(data[at : at + _VARINT_BYTES_MAX]):
        result |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return result & (1 << 64) - 1, at + shift + 1
    raise CorruptRecord("metrics with a number that does not end")


def _message(value: _Value) -> memoryview:
    if not isinstance(value, memoryview):
        raise CorruptRecord("metrics with a number where a message belongs")
    return value


def _text(value: _Value) -> str:
    try:
        return str(_message(value), "utf-8")
    except UnicodeDecodeError as e:
        raise CorruptRecord("metrics with a text that is not UTF-8") from e


def _number(value: _Value) -> int:
    if not isinstance(value, int):
        raise CorruptRecord("metrics without a number where one belongs")
    return value


def _unpacked(form: Struct, value: _Value) -> float:
    if not isinstance(value, bytes) or len(value) != form.size:
        raise CorruptRecord("metrics without a number of eight bytes where one belongs")
    (number,) = form.unpack(value)
    return float(number)
