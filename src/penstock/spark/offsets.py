"""Offsets as options and checkpoints write them.

Duty: the JSON of options (`{"topic": {"0": 23}}`, -2 for earliest and -1 for latest in it), the
bounds that options give a query, and the offsets that a stream hands to Spark's checkpoint.

A checkpointed offset is `{"offsets": {...}}`. Spark does not checkpoint where batch 0 starts, nor
could it know where a partition that has just been found starts; so an end also carries, under
`"start"`, the resolved starts of those partitions. A replay after a restart then reads
what the first attempt read, whatever "latest" or "earliest" mean by then. An offset that nothing
was read up to yet is marked `"initial"`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from penstock.spark.errors import OptionError, SparkError

EARLIEST = -2
LATEST = -1

Partition: TypeAlias = tuple[str, int]
Offsets: TypeAlias = dict[Partition, int]


class Kind(Enum):
    """How a bound of a query is given."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets for each partition"
    TIMES = "timestamps for each partition"
    TIME = "one timestamp for all partitions"


class Bound(NamedTuple):
    """Where a query starts or ends, as the user said it."""

    option: str
    kind: Kind
    values: Mapping[Partition, int] = {}
    time_ms: int = 0


def parse_assign(option: str, text: str) -> frozenset[Partition]:
    """`{"topic": [0, 1]}`."""
    found = set()
    for topic, partitions in _object(option, text).items():
        if not isinstance(partitions, list) or not all(map(_is_number, partitions)):
            raise _bad(option, text, '{"topic": [0, 1]}')
        found |= {(topic, partition) for partition in partitions}
    if not found:
        raise _bad(option, text, '{"topic": [0, 1]}')
    return frozenset(found)


def parse_numbers(option: str, text: str, *, least: int) -> Offsets:
    """`{"topic": {"0": 23}}`, where no number is below `least`."""
    found = {}
    for topic, numbers in _object(option, text).items():
        if not isinstance(numbers, dict):
            raise _bad(option, text, '{"topic": {"0": 23}}')
        for partition, number in numbers.items():
            if not partition.isdigit() or not _is_number(number) or number < least:
                raise _bad(option, text, '{"topic": {"0": 23}}')
            found[topic, int(partition)] = number
    if not found:
        raise _bad(option, text, '{"topic": {"0": 23}}')
    return found


def parse_offsets_bound(option: str, text: str) -> Bound:
    """`earliest`, `latest` or JSON."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Bound(option, Kind(word))
    return Bound(option, Kind.OFFSETS, parse_numbers(option, text, least=EARLIEST))


def _object(option: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as e:
        raise OptionError(f"option {option} is not valid JSON ({e}): {text!r}") from None
    if not isinstance(found, dict):
        raise OptionError(f"option {option} must be a JSON object, not {text!r}")
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _bad(option: str, text: str, form: str) -> OptionError:
    return OptionError(f"option {option} must have the form {form}, not {text!r}")


def to_json(offsets: Mapping[Partition, int]) -> dict[str, dict[str, int]]:
    """By topic, then partition, in order: equal offsets are equal text."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        (t, int(p)): offset for t, of_topic in offsets.items() for p, offset in of_topic.items()
    }


class StreamOffset(NamedTuple):
    """How far a stream has read, as it stands in the checkpoint."""

    offsets: Offsets
    start: Offsets = {}  # noqa: RUF012  # never changed
    initial: bool = False

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"offsets": to_json(self.offsets)}
        if self.start:
            found["start"] = to_json(self.start)
        if self.initial:
            found["initial"] = True
        return found

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> StreamOffset:
        try:
            return cls(
                from_json(written["offsets"]),
                from_json(written.get("start", {})),
                bool(written.get("initial", False)),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise SparkError(
                f"the checkpoint holds an offset that is not of this source: {written!r}; give the"
                " query a checkpointLocation of its own"
            ) from None


def ranges_between(start: StreamOffset, end: StreamOffset) -> dict[Partition, tuple[int, int]]:
    """The offsets of each partition between two checkpointed ones, empty ranges left out."""
    if end.initial:
        return {}
    found = {}
    for partition, stop in end.offsets.items():
        begin = end.start.get(partition, start.offsets.get(partition, stop))
        if begin < stop:
            found[partition] = (begin, stop)
    return found
