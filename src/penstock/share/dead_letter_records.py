"""What a dead letter looks like, and the marker that says which ones are written. Pure.

A dead letter has the headers of its record, then Kafka's: `__dlq.errors.topic`, `.partition`,
`.offset`, `.group`, `.delivery.count` and `.message`, all text, and two of ours: `.reason`
(`rejected` or `limit`), and `.omitted`, which names what was left out because the whole would be
larger than the topic takes. Key and value come with it where the group wants them.

The marker is the metadata of an offset: the topic's id, the state epoch, and the ranges of offsets
that the last transaction has written, as `5-9,12`. Another topic of the name, or a group whose
offsets were set anew, is not meant by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.base.ids import Uuid, uuid_text
from penstock.share.changes import OffsetRange
from penstock.share.types import Cause
from penstock.share.values import DeadLetter
from penstock.wire.records import HEADER_SIZE, Header, Record, build_batch, encode_record

PREFIX: Final = "__dlq.errors."
_SAID: Final = {
    Cause.REJECTED: ("rejected", "Offset rejected by client."),
    Cause.LIMIT: ("limit", "Offset delivery count exceeded the threshold."),
}
"""The reason, and Kafka's sentence."""

VALUE, KEY, HEADERS, RECORD = "value", "key", "headers", "record"
_OMISSIONS: Final = ((), (VALUE,), (KEY, VALUE), (KEY, VALUE, HEADERS))
"""What is left out of a record, in turn, until it is small enough."""
_OMISSIONS_OF_HEADERS: Final = ((), (HEADERS,))


class Origin(NamedTuple):
    """The share-partition that dead letters come from."""

    group_id: str
    topic: str
    partition: int

    @property
    def marker_group(self) -> str:
        """The group whose offset is the marker."""
        return f"__dlq.{self.group_id}"

    @property
    def transactional_id(self) -> str:
        """Of its writer. No name of a topic has a colon, so no two have the same."""
        return f"__dlq.{self.group_id}:{self.topic}:{self.partition}"


# -- records -----------------------------------------------------------------------------------


class Made(NamedTuple):
    """Dead letters as one batch, ready to be written."""

    batch: bytes
    ranges: list[OffsetRange]
    """Those that are in it."""
    shortened: int
    """Of how many something was left out for its size."""


def made(
    origin: Origin,
    letters: Sequence[DeadLetter],
    found: Mapping[int, Record],
    *,
    now_ms: int,
    copy: bool,
    record_bytes_max: int,
    batch_bytes_max: int,
    marker_room: int,
) -> Made:
    """As many of these dead letters as make one batch; at least one.

    `found` has their records; one that is not there has gone from the log. `marker_room` is how
    many characters the ranges may take in the marker.
    """
    records: list[Record] = []
    ranges: list[OffsetRange] = []
    size, room, shortened = HEADER_SIZE, marker_room, 0
    for offset, letter in offsets_of(letters):
        source = found.get(offset)
        if source is None:
            headers = _headers(origin, letter, offset, (RECORD,))
            record, omitted = Record(0, now_ms, None, None, headers), False
        else:
            record, omitted = _fitting(
                origin, letter, source, now_ms, copy=copy, bytes_max=record_bytes_max
            )
        record_size = _size(record)
        joins = bool(ranges) and ranges[-1][1] == offset - 1
        room -= 0 if joins else 2 * len(str(offset)) + 4  # as a range, which may grow by a digit
        if records and (size + record_size > batch_bytes_max or room < 0):
            break
        records.append(record)
        ranges[len(ranges) - joins :] = [(ranges[-1][0] if joins else offset, offset)]
        size += record_size
        shortened += omitted
    return Made(build_batch(records), ranges, shortened)


def offsets_of(letters: Iterable[DeadLetter]) -> Iterator[tuple[int, DeadLetter]]:
    for letter in letters:
        for offset in range(letter.first_offset, letter.last_offset + 1):
            yield offset, letter


def _fitting(
    origin: Origin, letter: DeadLetter, source: Record, now_ms: int, *, copy: bool, bytes_max: int
) -> tuple[Record, bool]:
    """The dead letter of a record, and whether something had to be left out."""
    for omitted in _OMISSIONS if copy else _OMISSIONS_OF_HEADERS:
        own = () if HEADERS in omitted else source.headers
        record = Record(
            0,
            now_ms,
            source.key if copy and KEY not in omitted else None,
            source.value if copy and VALUE not in omitted else None,
            (*own, *_headers(origin, letter, source.offset, omitted)),
        )
        if HEADER_SIZE + _size(record) <= bytes_max:
            break
    return record, bool(omitted)


def _headers(
    origin: Origin, letter: DeadLetter, offset: int, omitted: Iterable[str]
) -> tuple[Header, ...]:
    reason, sentence = _SAID[letter.cause]
    texts = {
        "topic": origin.topic,
        "partition": str(origin.partition),
        "offset": str(offset),
        "group": origin.group_id,
        "delivery.count": str(letter.delivery_count),
        "message": sentence,
        "reason": reason,
    }
    if left_out := ",".join(omitted):
        texts["omitted"] = left_out
    return tuple((PREFIX + name, text.encode()) for name, text in texts.items())


def _size(record: Record) -> int:
    """At most so many bytes are added to a batch by it."""
    body = bytearray()
    encode_record(body, _DELTA_MAX, 0, record)
    return len(body)


_DELTA_MAX: Final = 2**20


# -- the marker --------------------------------------------------------------------------------


class Marker(NamedTuple):
    topic_id: Uuid
    state_epoch: int
    ranges: list[OffsetRange]

    @property
    def text(self) -> str:
        runs = (f"{first}-{last}" if last > first else str(first) for first, last in self.ranges)
        return f"{uuid_text(self.topic_id)} {self.state_epoch} {','.join(runs)}"


def marked(text: str, topic_id: Uuid, state_epoch: int) -> list[OffsetRange]:
    """The ranges that a marker names, if it is about this topic and epoch."""
    of_topic, _, rest = text.partition(" ")
    of_epoch, _, runs = rest.partition(" ")
    if (of_topic, of_epoch) != (uuid_text(topic_id), str(state_epoch)) or not runs:
        return []
    bounds = (run.partition("-") for run in runs.split(","))
    return [(int(first), int(last or first)) for first, _, last in bounds]


def room_for_ranges(topic_id: Uuid, state_epoch: int, text_max: int) -> int:
    """How many characters of a marker are left for its ranges."""
    return text_max - len(Marker(topic_id, state_epoch, []).text)


def divided(
    letters: Iterable[DeadLetter], ranges: Sequence[OffsetRange]
) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """The parts of dead letters that lie in these ascending ranges, and those that do not."""
    inside: list[OffsetRange] = []
    outside: list[OffsetRange] = []
    for letter in letters:
        first, last = letter.first_offset, letter.last_offset
        for range_first, range_last in ranges:
            if range_last < first or range_first > last:
                continue
            if range_first > first:
                outside.append((first, range_first - 1))
            inside.append((max(first, range_first), min(last, range_last)))
            first = range_last + 1
        if first <= last:
            outside.append((first, last))
    return inside, outside
