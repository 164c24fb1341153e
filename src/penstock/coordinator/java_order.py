"""The order in which Kafka describes the members of a group.

Kafka keeps members in hash tables and lists them in the order of the table. That order follows from
the member ids, the order in which they came, and the size of the table, which grows with the most
members that the group ever had in this coordinator. So it can be computed without a table: by slot,
and by age within a slot. Not covered: Kafka's classic groups turn a slot with eight or more members
into a tree, and a write that failed may change the order within a slot.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

HASH_MAP_SLOTS_MIN: Final = 16
TIMELINE_SLOTS_MIN: Final = 2
LOAD: Final = 0.75
GOLDEN_RATIO_64: Final = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio: the factor of Fibonacci hashing."""
INT_MASK: Final = (1 << 32) - 1
LONG_MASK: Final = (1 << 64) - 1


def hash_map_order(ids: Iterable[str], size_max: int) -> list[str]:
    """The keys of a `java.util.HashMap` that has held up to `size_max`: classic groups."""
    slots = HASH_MAP_SLOTS_MIN
    while size_max > slots * LOAD:
        slots *= 2

    def slot(text: str) -> int:
        code = hash_code(text)
        return (code ^ (code >> 16)) & (slots - 1)

    return sorted(ids, key=slot)


def timeline_map_order(ids: Iterable[str], size_max: int) -> list[str]:
    """The keys of Kafka's `TimelineHashMap` that has held up to `size_max`: consumer groups.

    It reads a slot from its end, so the youngest of a slot comes first.
    """
    slots = TIMELINE_SLOTS_MIN
    while size_max * LOAD > slots:
        slots *= 2
    shift = 64 - (slots.bit_length() - 1)

    def slot(text: str) -> int:
        code = hash_code(text)
        signed = code - (1 << 32) if code >> 31 else code
        return (signed * GOLDEN_RATIO_64 & LONG_MASK) >> shift

    youngest_first = list(ids)[::-1]
    return sorted(youngest_first, key=slot)


def hash_code(text: str) -> int:
    """Java's hash of a string, unsigned: over its UTF-16 code units."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (code * 31 + (high << 8 | low)) & INT_MASK
    return code
