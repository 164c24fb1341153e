"""Durations as Java's `Duration` reads them: days to seconds of ISO 8601, each with a sign."""

from __future__ import annotations

import re
from typing import Final

_NUMBER: Final = r"(?:([-+]?[0-9]+){unit})?"
_DURATION: Final = re.compile(
    r"([-+]?)P"
    + _NUMBER.format(unit="D")
    + r"(T"
    + _NUMBER.format(unit="H")
    + _NUMBER.format(unit="M")
    + r"(?:([-+]?)([0-9]+)(?:[.,]([0-9]{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_MS_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = 18
"""Of one part; more is beyond any time that a log can have."""
DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000
MINUTE_MS: Final = 60_000


def duration_ms(text: str) -> int | None:
    """Whole milliseconds, rounded down; None if the text is no duration."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    sign, days, time, hours, minutes, seconds_sign, seconds, fraction = found.groups()
    parts = (days, hours, minutes, seconds)
    if time in ("T", "t") or not any(parts) or any(len(p) > _DIGITS_MAX for p in parts if p):
        return None
    nanos = int(seconds or 0) * 10**9 + int((fraction or "").ljust(9, "0"))
    if seconds_sign == "-":
        nanos = -nanos
    whole_ms = int(days or 0) * DAY_MS + int(hours or 0) * HOUR_MS + int(minutes or 0) * MINUTE_MS
    total = whole_ms * 10**6 + nanos
    ms = (-total if sign == "-" else total) // 10**6
    return ms if -_MS_MAX <= ms <= _MS_MAX else None
