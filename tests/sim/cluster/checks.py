"""What must hold whatever happens, checked on every observation; a breach is a `Violation`.

`History` knows what clients were promised and what they saw:
* a record that a consumer saw never changes and never vanishes, whichever replica served it;
* an acknowledged record is there, at the offset that the acknowledgement named, until retention or
  compaction may take it: of a partition that is compacted the last record of every key stays, of
  one with retention all that lies behind the log start;
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
    """A partition that keeps everything."""

    name: str
    batches: dict[int, Seen] = field(default_factory=dict)
    values: dict[bytes, int] = field(default_factory=dict)
    """Where each record of an idempotent producer was seen."""
    records: dict[int, bytes] = field(default_factory=dict)
    acknowledged: dict[int, tuple[bytes, str]] = field(default_factory=dict)
    watermarks: dict[int, int] = field(default_factory=dict)
    """The highest watermark seen, by leader epoch."""
    starts: dict[int, int] = field(default_factory=dict)
    """The highest log start seen, by leader epoch."""
    final: dict[int, bytes] = field(default_factory=dict)
    """What was read last, when all was over."""
    is_over: bool = False

    def promise(self, offset: int, value: bytes, who: str) -> None:
        promised = self.acknowledged.setdefault(offset, (value, who))
        holds(
            promised[0] == value,
            f"{self.name}@{offset} was promised to {promised} and to {(value, who)}",
        )
        seen = self.records.get(offset)
        holds(
            seen is None or seen == value,
            f"{self.name}@{offset}: {who} was promised {value!r}, consumers saw {seen!r}",
        )

    def told_start(self, epoch: int, start: int) -> None:
        self.starts[epoch] = max(self.starts.get(epoch, 0), start)

    def see(self, base: int, last: int, batch: bytes, who: str) -> int:
        """A consumer was given a batch; the number of its records."""
        seen, crc = self.batches.get(base), crc32(batch)
        holds(
            seen is None or (seen.last_offset, seen.crc) == (last, crc),
            f"{self.name}@{base}: {who} read another batch than {seen and seen.by} did before",
        )
        if seen is not None and not self.is_over:
            return 0
        self.batches[base] = Seen(last, crc, who)
        return self.see_records(batch, who)

    def see_records(self, batch: bytes, who: str) -> int:
        records = [] if parse_header(batch).is_control else read_records(batch)
        for record in records:
            self._see_record(record, who)
        return len(records)

    def text_of(self, record: Record) -> bytes:
        return record.value or b""

    def _see_record(self, record: Record, who: str) -> None:
        value, offset = self.text_of(record), record.offset
        if self.is_over:
            self.final[offset] = value
        before = self.records.setdefault(offset, value)
        holds(before == value, f"{self.name}@{offset}: {who} saw {value!r}, others {before!r}")
        promised = self.acknowledged.get(offset)
        holds(
            promised is None or promised[0] == value,
            f"{self.name}@{offset}: {who} saw {value!r} where {promised} was promised",
        )
        if record.key is None or record.value is None:
            return  # only idempotent producers write a key
        twice = self.values.setdefault(value, offset)
        holds(twice == offset, f"{self.name}: {value!r} stands at {twice} and at {offset} ({who})")

    def check_complete(self) -> None:
        """Consumers have read everything anew: all that was promised or seen must be there."""
        self.check_from(0)
        last: dict[bytes, int] = {}
        for value, _ in sorted(self.values.items(), key=lambda entry: entry[1]):
            producer, now = _number(value)
            before = last.get(producer, -1)
            holds(
                now == before + 1,
                f"{self.name}: {producer!r} wrote {before} and then {now}: order or loss",
            )
            last[producer] = now

    def check_from(self, start: int) -> None:
        known = {offset: (value, "consumers") for offset, value in self.records.items()}
        for offset, (value, who) in (known | self.acknowledged).items():
            holds(
                offset < start or self.final.get(offset) == value,
                f"{self.name}@{offset}: {value!r}, acknowledged to {who}, is lost; there is "
                f"{self.final.get(offset)!r}",
            )


@dataclass
class RetainedHistory(PartitionHistory):
    """A partition whose oldest records may go."""

    final_start: int = 0

    def told_start(self, epoch: int, start: int) -> None:
        super().told_start(epoch, start)
        if self.is_over:
            self.final_start = max(self.final_start, start)

    def check_complete(self) -> None:
        start = self.final_start
        self.check_from(start)
        last: dict[bytes, tuple[int, int]] = {}
        for value, offset in sorted(self.values.items(), key=lambda entry: entry[1]):
            producer, now = _number(value)
            before, at = last.get(producer, (-1, -1))
            # What lay in between may have gone before anybody had read it.
            holds(
                now == before + 1 or (now > before and at < start > 0),
                f"{self.name}: {producer!r} wrote {before} and then {now}: order or loss",
            )
            last[producer] = now, offset


class CompactedHistory(PartitionHistory):
    """A partition of which the last record of every key stays; batches change their form."""

    def see(self, base: int, last: int, batch: bytes, who: str) -> int:
        return self.see_records(batch, who)

    def text_of(self, record: Record) -> bytes:
        return keyed(record.key or b"", record.value)

    def check_complete(self) -> None:
        latest: dict[bytes, int] = {}
        known = {offset: value for offset, (value, _) in self.acknowledged.items()} | self.records
        for offset in sorted(known):
            latest[_key(known[offset])] = offset
        kept: dict[bytes, list[int]] = {}
        for offset, value in self.final.items():
            kept.setdefault(_key(value), []).append(offset)
        for key, offset in latest.items():
            there, value = kept.get(key, []), known[offset]
            if value.endswith(b"="):  # a deletion goes in the end, but not before what it deletes
                holds(
                    offset in there or not there,
                    f"{self.name}: {key!r} was deleted at {offset}, and is back at {there}",
                )
            else:
                holds(offset in there, f"{self.name}@{offset}: {value!r}, the last of its key, "
                      f"is lost; of the key there is {there}")  # fmt: skip


def keyed(key: bytes, value: bytes | None) -> bytes:
    """A record of a compacted partition, as its history has it; nothing behind `=` deletes."""
    return key + b"=" + (value or b"")


def _key(text: bytes) -> bytes:
    return text.partition(b"=")[0]


def _number(value: bytes) -> tuple[bytes, int]:
    """Who wrote a value, and the how-manieth of his it is."""
    producer, _, number = value.partition(b" ")[0].rpartition(b"/")
    return producer, int(number)


class History:
    def __init__(self) -> None:
        self.partitions: dict[tuple[str, int], PartitionHistory] = {}
        self.kinds: dict[str, type[PartitionHistory]] = {}
        """Of topics that do not keep everything."""
        self.acknowledged_total = 0
        self.read_total = 0

    def of(self, topic: str, partition: int) -> PartitionHistory:
        found = self.partitions.get((topic, partition))
        if found is None:
            found = self.kinds.get(topic, PartitionHistory)(f"{topic}-{partition}")
            self.partitions[topic, partition] = found
        return found

    def acknowledge(
        self, topic: str, partition: int, base_offset: int, values: list[bytes], who: str
    ) -> None:
        """The cluster has promised to keep `values` from `base_offset` on."""
        history = self.of(topic, partition)
        self.acknowledged_total += len(values)
        for offset, value in enumerate(values, base_offset):
            history.promise(offset, value, who)

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

    def log_start(self, topic: str, partition: int, epoch: int) -> int:
        """What a leader of `epoch` has told of its log start up to now."""
        return self.of(topic, partition).starts.get(epoch, 0)

    def told_log_start(
        self, topic: str, partition: int, epoch: int, start: int, before: int, high_watermark: int
    ) -> None:
        """As `told_watermark`."""
        history = self.of(topic, partition)
        told = f"{history.name}: a leader of epoch {epoch} told of log start {start}"
        holds(start >= before, f"{told} after {before}")
        holds(start <= high_watermark, f"{told} above its high watermark {high_watermark}")
        holds(start == 0 or isinstance(history, RetainedHistory), f"{told} where all is kept")
        history.told_start(epoch, start)

    def read(self, topic: str, partition: int, data: bytes | memoryview, who: str) -> int | None:
        """A consumer read `data`; gives the offset after it, None for nothing whole."""
        history = self.of(topic, partition)
        view, position, after = memoryview(data), 0, None
        while position < len(view):
            header = parse_header(view, position)
            batch = bytes(view[position : position + header.size])
            if len(batch) < header.size:
                break
            holds(
                after is None or header.base_offset >= after,
                f"{history.name}: {who} was given {header.base_offset} behind {after}",
            )
            self.read_total += history.see(header.base_offset, header.last_offset, batch, who)
            after = header.last_offset + 1
            position += header.size
        return after

    def check_complete(self) -> None:
        for history in self.partitions.values():
            history.check_complete()
