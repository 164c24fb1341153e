"""Dead letters of a group: read from their topic, understood, chosen.

A dead letter says in its headers where the record came from, whose it was, how often it was
delivered and why it was given up. Whether it has the record's own key, value and headers is a
setting of the group. Only committed records are read, up to the end that the topic has when the
reading begins.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock.cli.errors import CliError
from penstock.cli.kafka import Cluster
from penstock.cli.offsets import Offsets
from penstock.cli.queue.positions import Done
from penstock.kafka.offsets import Partition

PREFIX: Final = "__dlq.errors."
"""Of the headers that are not the record's own."""
GROUP_PREFIX: Final = "__redrive."
"""In front of the group's id: the group whose offsets say how far a redrive has come."""
CONSUMER_SETTINGS: Final = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "fetch.queue.backoff.ms": 1,
    "fetch.wait.max.ms": 100,
}
"""Partitions are assigned by hand, and only what is committed is read."""
POLL_S: Final = 0.2
BATCH_MESSAGES: Final = 500
_PASSING: Final = ("_TRANSPORT", "_ALL_BROKERS_DOWN")


class Source(NamedTuple):
    """The record that was given up."""

    topic: str
    partition: int
    offset: int

    @property
    def place(self) -> Partition:
        return self.topic, self.partition

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    source: Source
    group: str
    reason: str
    message: str
    deliveries: int | None
    partition: int
    """Of the dead-letter topic, as the offset."""
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    """The record's own."""
    omitted: str
    """What of the record was left out, as it was too large or gone."""

    @property
    def has_record(self) -> bool:
        """Whether it has the whole record. One without key and value cannot be told from one that
        was not copied.
        """
        return not self.omitted and (self.key is not None or self.value is not None)


@dataclass(frozen=True)
class Choice:
    """Which dead letters are meant; what is not given is not looked at."""

    reason: str | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()

    def takes(self, letter: DeadLetter) -> bool:
        return (
            (self.reason is None or self.reason.lower() == letter.reason.lower())
            and (self.key is None or self.key == letter.key)
            and all(header in letter.headers for header in self.headers)
        )


def dead_letter(message: Message) -> DeadLetter | None:
    """What a message says as a dead letter; None if it is none."""
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    said = {
        key.removeprefix(PREFIX): (value or b"").decode("utf-8", "replace")
        for key, value in headers
        if key.startswith(PREFIX)
    }
    try:
        source = Source(said["topic"], int(said["partition"]), int(said["offset"]))
    except (KeyError, ValueError):
        return None
    count = said.get("delivery.count", "")
    kind, at = message.timestamp()
    return DeadLetter(
        source,
        said.get("group", ""),
        said.get("reason", ""),
        said.get("message", ""),
        int(count) if count.isdecimal() else None,
        message.partition() or 0,
        message.offset() or 0,
        at if kind else None,
        message.key(),
        message.value(),
        [(key, value) for key, value in headers if not key.startswith(PREFIX)],
        said.get("omitted", ""),
    )


class Reading:
    """Messages of a topic from given offsets up to its present ends, partition by partition in
    order, several side by side.
    """

    def __init__(
        self,
        cluster: Cluster,
        consumer: Consumer,
        topic: str,
        bounds: Mapping[int, tuple[int, int]],
    ) -> None:
        """`bounds` has for each partition where to begin and before which offset to stop."""
        self._cluster = cluster
        self._consumer = consumer
        self._topic = topic
        self._ends = {p: end for p, (begin, end) in bounds.items() if begin < end}
        consumer.assign([TopicPartition(topic, p, bounds[p][0]) for p in sorted(self._ends)])

    def batches(self) -> Iterator[list[Message]]:
        """What has come, and now and then nothing, so that the caller can stop."""
        quiet_since = time.monotonic()
        while self._ends:
            found = [m for m in self._consumer.consume(BATCH_MESSAGES, POLL_S) if self._belongs(m)]
            if found:
                quiet_since = time.monotonic()
            elif self._ends and time.monotonic() - quiet_since > self._cluster.timeout_s:
                raise self._silence()
            yield found

    def _belongs(self, message: Message) -> bool:
        """Whether it is a message before the end; closes its partition there."""
        error, partition = message.error(), message.partition() or 0
        if error is not None:
            self._note(error, partition)
            return False
        offset, end = message.offset() or 0, self._ends.get(partition)
        if end is None:
            return False
        if offset + 1 >= end:
            del self._ends[partition]
        return offset < end

    def _note(self, error: KafkaError, partition: int) -> None:
        if error.name() == "_PARTITION_EOF":
            self._ends.pop(partition, None)
        elif not error.retriable() and error.name() not in _PASSING:
            raise self._cluster.sentence(error, f"read {self._topic!r} partition {partition}")

    def _silence(self) -> CliError:
        waiting = ", ".join(map(str, sorted(self._ends)))
        return CliError(
            f"nothing came for {self._cluster.timeout_s:g} s from partitions {waiting} of"
            f" {self._topic!r}, which have more: check their leaders with `penstock topic describe"
            f" {self._topic}`, or wait longer with --timeout"
        )


class Box:
    """A dead-letter topic as one group sees it: its letters, and how far a redrive has come."""

    def __init__(self, cluster: Cluster, group: str, topic: str) -> None:
        self.group = group
        self.topic = topic
        self.done: dict[int, Done] = {}
        """By partition, as of when they were last asked for."""
        self._cluster = cluster
        self.consumer = cluster.consumer(CONSUMER_SETTINGS | {"group.id": GROUP_PREFIX + group})

    def __enter__(self) -> Box:
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.close()

    def is_mine(self, letter: DeadLetter) -> bool:
        return letter.group == self.group

    def waits(self, letter: DeadLetter) -> bool:
        """Whether it is the group's and was not redriven."""
        return self.is_mine(letter) and letter.offset not in self.done[letter.partition]

    def bounds(self, *, from_start: bool = False) -> dict[int, tuple[int, int]]:
        """Where to begin in each partition, and where it ends now; all of it is `from_start`. A
        topic that nothing was written to yet may not be there.
        """
        found = self._cluster.topics(self._cluster.admin()).get(self.topic)
        if found is None:
            return {}
        places = [(self.topic, partition) for partition in sorted(found.partitions)]
        offsets = Offsets(self._cluster)
        starts, ends = offsets.starts(places), offsets.ends(places)
        asked = [TopicPartition(self.topic, partition) for _, partition in places]
        try:
            committed = self.consumer.committed(asked, timeout=self._cluster.timeout_s)
        except KafkaException as e:
            doing = f"read the position of {GROUP_PREFIX + self.group!r}"
            raise self._cluster.sentence(e.args[0], doing) from None
        for one in committed:
            done = self.done[one.partition] = Done(max(one.offset, 0), one.metadata or "")
            done.nothing_before(starts[self.topic, one.partition])
        return {
            partition: (
                starts[self.topic, partition] if from_start else self.done[partition].offset,
                ends[self.topic, partition],
            )
            for _, partition in places
        }

    def batches(self, bounds: Mapping[int, tuple[int, int]]) -> Iterator[list[Message]]:
        """Its messages within these bounds; now and then none, so that the caller can stop."""
        return Reading(self._cluster, self.consumer, self.topic, bounds).batches()
