"""What must hold whatever happens, checked on every observation; a breach is a `Violation`.

`History` knows what clients were promised and what they saw:
* a record that a consumer saw never changes and never vanishes, whichever replica served it;
* an acknowledged record is there, at the offset that the acknowledgement named;
* an idempotent producer's records are there once and in its order;
* the high watermark and the log start that consumers see do not go back within a leader epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from zlib import crc32

from penstock.wire.records import Record, parse_header, read_records


class Violation(Exception):
    """The cluster broke a promise."""


def holds(condition: bool, what: str) -> None:
    if not condition:
        raise Violation(what)


@dataclass
class Seen:
    """A batch as consumers saw it."""

    last_offset: int
    crc: int
    by: str


@dataclass
class PartitionHistory:
    name: str
    batches: dict[int, Seen] = field(default_factory=dict)
    values: dict[bytes, int] = field(default_factory=dict)
    """Where each record of an idempotent producer was seen."""
    records: dict[int, bytes] = field(default_factory=dict)
    acknowledged: dict[int, tuple[bytes, str]] = field(default_factory=dict)
    watermarks: dict[int, int] = field(default_factory=dict)
    """The highest watermark seen, by leader epoch."""


class History:
    def __init__(self) -> None:
        self.partitions: dict[tuple[str, int], PartitionHistory] = {}
        self.acknowledged_total = 0
        self.read_total = 0

    def of(self, topic: str, partition: int) -> PartitionHistory:
        found = self.partitions.get((topic, partition))
        if found is None:
            found = PartitionHistory(f"{topic}-{partition}")
            self.partitions[topic, partition] = found
        return found

    def acknowledge(
        self, topic: str, partition: int, base_offset: int, values: list[bytes], who: str
    ) -> None:
        """The cluster has promised to keep `values` from `base_offset` on."""
        history = self.of(topic, partition)
        self.acknowledged_total += len(values)
        for offset, value in enumerate(values, base_offset):
            promised = history.acknowledged.setdefault(offset, (value, who))
            holds(
                promised[0] == value,
                f"{history.name}@{offset} was promised to {promised} and to {(value, who)}",
            )
            seen = history.records.get(offset)
            holds(
                seen is None or seen == value,
                f"{history.name}@{offset}: {who} was promised {value!r}, consumers saw {seen!r}",
            )

    def watermark(self, topic: str, partition: int, epoch: int) -> int:
        """What a leader of `epoch` has told of its high watermark up to now."""
        return self.of(topic, partition).watermarks.get(epoch, -1)

    def told_watermark(
        self, topic: str, partition: int, epoch: int, high_watermark: int, before: int
    ) -> None:
        """It told a consumer again; `before` was known when the consumer asked."""
        history = self.of(topic, partition)
        holds(
            high_watermark >= before,
            f"{history.name}: high watermark went from {before} back to {high_watermark} in leader "
            f"epoch {epoch}",
        )
        known = history.watermarks.get(epoch, -1)
        history.watermarks[epoch] = max(known, high_watermark)

    def read(self, topic: str, partition: int, data: bytes | memoryview, who: str) -> int | None:
        """A consumer read `data`; gives the offset after it, None for nothing whole."""
        history = self.of(topic, partition)
        view, position, after = memoryview(data), 0, None
        while position < len(view):
            header = parse_header(view, position)
            batch = bytes(view[position : position + header.size])
            if len(batch) < header.size:
                break
            self._see(history, header.base_offset, header.last_offset, batch, who)
            after = header.last_offset + 1
            position += header.size
        return after

    def _see(self, history: PartitionHistory, base: int, last: int, batch: bytes, who: str) -> None:
        seen, crc = history.batches.get(base), crc32(batch)
        if seen is not None:
            holds(
                (seen.last_offset, seen.crc) == (last, crc),
                f"{history.name}@{base}: {who} read another batch than {seen.by} did before",
            )
            return
        history.batches[base] = Seen(last, crc, who)
        if parse_header(batch).is_control:
            return
        for record in read_records(batch):
            self._see_record(history, record, who)

    def _see_record(self, history: PartitionHistory, record: Record, who: str) -> None:
        self.read_total += 1
        value, offset = record.value or b"", record.offset
        before = history.records.setdefault(offset, value)
        holds(before == value, f"{history.name}@{offset}: {who} saw {value!r}, others {before!r}")
        promised = history.acknowledged.get(offset)
        holds(
            promised is None or promised[0] == value,
            f"{history.name}@{offset}: {who} saw {value!r} where {promised} was promised",
        )
        if record.key is None:
            return  # only idempotent producers write a key
        twice = history.values.setdefault(value, offset)
        holds(
            twice == offset, f"{history.name}: {value!r} stands at {twice} and at {offset} ({who})"
        )

    def check_complete(self) -> None:
        """Consumers have read everything: now all that was promised must have been seen."""
        for history in self.partitions.values():
            for offset, (value, who) in history.acknowledged.items():
                holds(
                    history.records.get(offset) == value,
                    f"{history.name}@{offset}: {value!r}, acknowledged to {who}, is lost; there is "
                    f"{history.records.get(offset)!r}",
                )
            self._check_order(history)

    def _check_order(self, history: PartitionHistory) -> None:
        last: dict[bytes, int] = {}
        for value, _ in sorted(history.values.items(), key=lambda entry: entry[1]):
            producer, _, number = value.partition(b" ")[0].rpartition(b"/")
            before, now = last.get(producer, -1), int(number)
            holds(
                now == before + 1,
                f"{history.name}: {producer!r} wrote {before} and then {now}: order or loss",
            )
            last[producer] = now
