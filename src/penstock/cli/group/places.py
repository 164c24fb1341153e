"""Where `penstock group seek` may send a group, as text and as offsets; and the CSV it reads and
writes.

Pure but for the files of `read_csv` and `write_csv`. The CSV has Kafka's own columns, `topic`,
`partition` and `offset`, without a header line.
"""

from __future__ import annotations

import csv
import re
from enum import Enum
from typing import NamedTuple

from penstock.cli.errors import CliError, usage_error
from penstock.cli.values import EPOCH_MS_MIN, TIME_FORMS, parse_time_ms
from penstock.kafka.offsets import Partition

_SHIFT = re.compile(r"[+-]\d+")
_OFFSET = re.compile(r"\d+")


class Goal(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    OFFSET = "offset"
    SHIFT = "shift"


class Destination(NamedTuple):
    """`value` is an offset, a time in ms or a number of messages, by `goal`."""

    goal: Goal
    value: int = 0


def parse_destination(text: str, now_ms: int) -> Destination:
    """What `--to` takes."""
    if text in ("earliest", "latest"):
        return Destination(Goal(text))
    if _SHIFT.fullmatch(text):
        return Destination(Goal.SHIFT, int(text))
    if _OFFSET.fullmatch(text) and int(text) < EPOCH_MS_MIN:
        return Destination(Goal.OFFSET, int(text))
    try:
        return Destination(Goal.TIME, parse_time_ms(text, now_ms))
    except CliError:
        raise usage_error(
            f"{text!r} is no place to go: write earliest, latest, an offset (42), a shift (+10 or"
            f" -10), or a time as {TIME_FORMS}"
        ) from None


def read_csv(path: str) -> dict[Partition, int]:
    """The offsets of a file, each partition once."""
    offsets: dict[Partition, int] = {}
    with open(path, newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.reader(file), 1):
            if not row:
                continue
            if len(row) != 3 or not (row[1].isdecimal() and row[2].isdecimal() and row[0]):
                raise CliError(
                    f"{path}, line {number}: {','.join(row)!r} is not topic,partition,offset:"
                    " correct the line"
                )
            place = (row[0], int(row[1]))
            if place in offsets:
                raise CliError(f"{path}, line {number}: {row[0]}-{row[1]} comes twice: keep one")
            offsets[place] = int(row[2])
    if not offsets:
        raise CliError(f"{path} holds no line topic,partition,offset: give another file")
    return offsets


def write_csv(path: str, offsets: dict[Partition, int]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        rows = ((topic, partition, offset) for (topic, partition), offset in offsets.items())
        csv.writer(file, lineterminator="\n").writerows(rows)
