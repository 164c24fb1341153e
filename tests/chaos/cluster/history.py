"""The record of a run: what clients asked for and were told, what the nemesis did, and when.

Times are seconds of one monotonic clock. An operation that was answered has the time of its call
(`called`) and of its answer (`at`); one thing happened before another for certain only if its
answer came before the other's call. Events are plain tuples; `Recorder` takes them from any thread.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

Partition = tuple[str, int]


class Sent(NamedTuple):
    """A producer was given a message; values are unique in a run."""

    at: float
    producer: str
    number: int
    partition: Partition
    value: str


class Acked(NamedTuple):
    """A message was acknowledged, with its offset; -1 when the client was told that it had been
    written before, but not where.
    """

    called: float
    at: float
    producer: str
    number: int
    partition: Partition
    offset: int
    value: str


class Failed(NamedTuple):
    """A message was given up; `surely` when the answer says that it was not written."""

    called: float
    at: float
    producer: str
    partition: Partition
    value: str
    error: str
    surely: bool


class Read(NamedTuple):
    """A reader got a record. A reader reads a partition onwards; each new start is a new reader."""

    called: float
    at: float
    reader: str
    partition: Partition
    offset: int
    value: str


class Offsets(NamedTuple):
    """A leader was asked for the bounds of a partition: its log start and high watermark."""

    called: float
    at: float
    partition: Partition
    log_start: int
    high_watermark: int


class Committed(NamedTuple):
    """A member's commit was accepted."""

    called: float
    at: float
    group: str
    member: str
    partition: Partition
    offset: int


class Fetched(NamedTuple):
    """A coordinator was asked for a committed offset; -1 is none."""

    called: float
    at: float
    group: str
    partition: Partition
    offset: int


class Owned(NamedTuple):
    """A member was told that a partition is now its own, or (`until`) no longer."""

    at: float
    group: str
    member: str
    partition: Partition
    until: bool


class Described(NamedTuple):
    """A coordinator was asked who owns what in a group."""

    at: float
    group: str
    owners: tuple[tuple[str, Partition], ...]


class Initialised(NamedTuple):
    """A transactional producer (`run`) has its epoch; those of its id before it are fenced."""

    at: float
    transactional_id: str
    run: str


class Ending(NamedTuple):
    """A producer is about to ask for the end of its transaction."""

    at: float
    transactional_id: str
    run: str
    transaction: str
    commit: bool


class Ended(NamedTuple):
    """It was told for certain how the transaction has ended."""

    at: float
    transaction: str
    committed: bool


class CommittedRead(NamedTuple):
    """A reader of committed data got a record."""

    called: float
    at: float
    reader: str
    partition: Partition
    offset: int
    value: str


class Stable(NamedTuple):
    """A leader was asked for the last stable offset of a partition and then for its high
    watermark.
    """

    called: float
    at: float
    partition: Partition
    last_stable: int
    high_watermark: int


class Created(NamedTuple):
    """The creation of a topic was acknowledged."""

    at: float
    topic: str


class Trouble(NamedTuple):
    """Something that a client was told and may never be told."""

    at: float
    who: str
    text: str


class Stuck(NamedTuple):
    """A client hangs in its library, while the cluster serves another one in its place."""

    at: float
    who: str


class Given(NamedTuple):
    """A poll of a share group's member returned a message."""

    called: float
    at: float
    member: str
    partition: Partition
    offset: int
    value: str
    count: int
    """How often it was delivered, as the leader says."""


class Settled(NamedTuple):
    """A member says what became of a message; `at` is None until that was answered, which is an
    event of its own.
    """

    called: float
    at: float | None
    member: str
    partition: Partition
    offset: int
    kind: str


class Fault(NamedTuple):
    """One fault from its beginning to its healing; `led` is what its victims led at the time."""

    name: str
    victims: tuple[int, ...]
    began: float
    healed: float
    recovered: float
    led: tuple[Partition, ...]
    note: str = ""


Event = (
    Sent
    | Given
    | Settled
    | Acked
    | Failed
    | Read
    | Offsets
    | Committed
    | Fetched
    | Owned
    | Described
    | Initialised
    | Ending
    | Ended
    | CommittedRead
    | Stable
    | Created
    | Trouble
    | Stuck
    | Fault
)
E = TypeVar("E", bound=Event)


class History(NamedTuple):
    """Everything that was recorded, by kind, and what the stopped cluster was found to hold.

    `final` is each partition's content as read at the end: (offset, value) in order. `expected` are
    the partitions that clients write to. `writers` says under which producer id and epoch a record
    was written, as far as that is known: a client library that loses its way begins a new epoch and
    may then repeat what it has sent, which no broker can notice. `committed` is the content of the
    partitions that transactions write to, as a reader of committed data finds it; `chained` is how
    far the chain's group has committed its input.
    """

    events: dict[type[Any], list[Any]]
    final: dict[Partition, list[tuple[int, str]]]
    topics: frozenset[str]
    expected: tuple[Partition, ...]
    writers: dict[Partition, dict[int, tuple[int, int]]] = {}  # noqa: RUF012  (never changed)
    committed: dict[Partition, list[tuple[int, str]]] = {}  # noqa: RUF012
    chained: dict[Partition, int] = {}  # noqa: RUF012

    def writer(self, partition: Partition, offset: int) -> tuple[int, int]:
        """(producer id, epoch) of a record, (-1, -1) if unknown."""
        return self.writers.get(partition, {}).get(offset, (-1, -1))

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind, in the order of their recording."""
        return self.events.get(kind, [])


class Recorder:
    """Takes events from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.events: dict[type[Any], list[Any]] = defaultdict(list)

    @staticmethod
    def now() -> float:
        """The run's clock."""
        return time.monotonic()

    def add(self, event: Event) -> None:
        with self._lock:
            self.events[type(event)].append(event)

    def load(self, path: Path, kinds: Iterable[type[Any]]) -> None:
        """Takes in what another process has written, line by line; the last may be cut short."""
        by_name = {kind.__name__: kind for kind in kinds}
        for line in path.read_text().splitlines() if path.exists() else []:
            try:
                name, *fields = json.loads(line)
            except ValueError:
                continue
            self.add(by_name[name](*fields))

    def count(self, kind: type[Event]) -> int:
        return len(self.events[kind])

    def save(self, path: Path) -> None:
        """Writes the events as lines of JSON, for a look at a run that went wrong."""
        with self._lock, path.open("w") as out:
            for kind, events in self.events.items():
                for event in events:
                    out.write(json.dumps([kind.__name__, *event]) + "\n")
