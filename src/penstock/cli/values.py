"""How what a person types becomes values: times, places in a log, key=value pairs.

Pure: the present time is handed in. Every refusal is a `CliError` that names the text and what
is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple

from penstock.cli.errors import CliError, usage_error

EPOCH_MS_MIN = 1_000_000_000_000
"""A bare number from here on is a time in ms since 1970 (September 2001 and later); below it is an
offset.
"""

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(\d+)(ms|s|m|h|d|w)")
_RELATIVE = re.compile(r"-(\d+)(ms|s|m|h|d|w)")
_INTEGER = re.compile(r"\d+")
_LAST = re.compile(r"-(\d+)")

TIME_FORMS = (
    "ISO 8601 (2026-01-31T12:00:00Z), relative (-90s, -15m, -1h, -7d) or milliseconds since 1970"
)


def parse_time_ms(text: str, now_ms: int) -> int:
    """A time as milliseconds since 1970; an ISO time without a zone is local time."""
    if match := _RELATIVE.fullmatch(text):
        return now_ms - int(match[1]) * _UNITS_MS[match[2]]
    if _INTEGER.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise usage_error(f"{text!r} is not a time: write it as {TIME_FORMS}") from None
    return round(moment.timestamp() * 1000)


def parse_duration_ms(text: str) -> int:
    """A length of time, as `90s` or `15m`, in milliseconds."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise usage_error(
            f"{text!r} is not a length of time: write it as 500ms, 90s, 15m, 1h or 7d"
        )
    return int(match[1]) * _UNITS_MS[match[2]]


def duration_text(duration_ms: int) -> str:
    """`350ms`, `2.5s`, `15.0m`, `3.2h`, `8.0d`: in the largest unit that it fills."""
    units = ("d", "h", "m", "s")
    unit = next((u for u in units if duration_ms >= _UNITS_MS[u]), "ms")
    return f"{duration_ms}ms" if unit == "ms" else f"{duration_ms / _UNITS_MS[unit]:.1f}{unit}"


def time_text(timestamp_ms: int) -> str:
    """A record's timestamp in ISO 8601, UTC, with milliseconds."""
    moment = datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Place(Enum):
    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    TIME = "time"
    LAST = "last"


class Position(NamedTuple):
    """A place in every partition of a topic; `value` is an offset, a time in ms or a count, by
    `place`.
    """

    place: Place
    value: int = 0


def parse_position(text: str, now_ms: int) -> Position:
    """What `--from` and `--to` take."""
    if text in ("beginning", "end"):
        return Position(Place(text))
    if match := _LAST.fullmatch(text):
        return Position(Place.LAST, int(match[1]))
    if _INTEGER.fullmatch(text) and int(text) < EPOCH_MS_MIN:
        return Position(Place.OFFSET, int(text))
    try:
        return Position(Place.TIME, parse_time_ms(text, now_ms))
    except CliError:
        raise usage_error(
            f"{text!r} is not a place in a topic: write beginning, end, an offset (42), -N for the"
            f" last N of each partition, or a time as {TIME_FORMS}"
        ) from None


def parse_pairs(items: Iterable[str], what: str) -> dict[str, str]:
    """`key=value` texts as a mapping; a key given twice with different values is refused."""
    pairs: dict[str, str] = {}
    for item in items:
        key, separator, value = item.partition("=")
        key = key.strip()
        if not separator or not key:
            raise usage_error(f"{item!r} is not a {what}: write it as key=value")
        if pairs.get(key, value) != value:
            raise usage_error(
                f"{what} {key!r} is given twice with different values: keep one of them"
            )
        pairs[key] = value
    return pairs


def parse_headers(items: Iterable[str]) -> list[tuple[str, bytes]]:
    """`key=value` texts as record headers, where a key may well occur more than once."""
    headers = []
    for item in items:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise usage_error(f"{item!r} is not a header: write it as key=value")
        headers.append((key, value.encode()))
    return headers


_SIZE = re.compile(r"(\d+)\s*([kKmMgGtT]?)(?:i?[bB])?")
_SIZE_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


def parse_size(text: str) -> int:
    """A number of bytes, with K, M, G or T for powers of 1024."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise usage_error(f"{text!r} is not a size: write a number of bytes such as 100, 16K or 1M")
    return int(match[1]) * _SIZE_UNITS[match[2].lower()]


_DECIMAL = r"(\d+(?:\.\d+)?)"
_RATE = re.compile(_DECIMAL + r"([kKmMgG]?)(?:/(s|m|min|h|d))?")
_BITS = re.compile(_DECIMAL + r"([kKmMgG])bit(?:/s)?")
_PERCENT = re.compile(_DECIMAL + "%")
_THOUSANDS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}
_PER_S = {None: 1, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}


def parse_rate(text: str) -> float:
    """How many per second, as `50k/s`, `1.5M` or `2M/d`, with k, M or G for powers of 1000."""
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise usage_error(f"{text!r} is not a rate: write it as 500/s, 50k/s, 1.5M/s or 2M/d")
    return float(match[1]) * _THOUSANDS[match[2].lower()] / _PER_S[match[3]]


def parse_bandwidth(text: str) -> float:
    """Bytes per second of a network, as `10Gbit/s`."""
    match = _BITS.fullmatch(text.strip())
    if match is None:
        raise usage_error(f"{text!r} is no speed of a network: write it as 500Mbit/s or 10Gbit/s")
    return float(match[1]) * _THOUSANDS[match[2].lower()] / 8


def parse_percent(text: str) -> float:
    """A share, as `30%`."""
    match = _PERCENT.fullmatch(text.strip())
    if match is None or float(match[1]) > 100:
        raise usage_error(f"{text!r} is no share: write it as 30%, at most 100%")
    return float(match[1]) / 100
