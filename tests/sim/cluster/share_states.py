"""The state topic, read independently of the coordinator: what its records add up to. Pure.

* Pruning loses nothing: what lies above the log's start says the same of every share-partition as
  all that was ever committed.
* What the coordinator has in memory is what its log says.

All that was ever committed is read while it is there: who looks has to come before who prunes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.coordinator.share_state.records import (
    ShareSnapshotValue,
    ShareUpdateValue,
    Value,
    decode,
)
from penstock.share.types import ShareKey
from penstock.wire.records import parse_header, read_records

from .checks import holds
from .share_history import ACKNOWLEDGED, ARCHIVED

KEEP = -1
"""A start or an epoch that stays as it is."""
Entry: TypeAlias = tuple[int, ShareKey, Value | None]
"""A record: its offset, share-partition and value."""


@dataclass
class Known:
    """What is persisted of one share-partition."""

    start: int
    leader_epoch: int
    state_epoch: int
    records: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By offset, from the start on: state and delivery count."""

    @property
    def finished_to(self) -> int:
        """Up to here all is done. The start follows with the next change, as in Kafka."""
        offset = self.start
        while self.records.get(offset, (0, 0))[0] in (ACKNOWLEDGED, ARCHIVED):
            offset += 1
        return offset


def entries(batches: Iterable[bytes]) -> Iterator[Entry]:
    """The records of committed batches."""
    for batch in batches:
        if not parse_header(batch).is_control:
            for record in read_records(batch):
                read = decode(record.key or b"", record.value)
                if read is not None:
                    yield record.offset, read.key, read.value


class StateTopic:
    """All that was ever committed, added up."""

    def __init__(self) -> None:
        self.states: dict[ShareKey, Known] = {}
        self._seen_to: dict[int, int] = {}

    def seen_to(self, index: int) -> int:
        """Up to here a partition has been read."""
        return self._seen_to.get(index, 0)

    def news(
        self, index: int, start: int, found: Iterable[Entry]
    ) -> Iterator[tuple[ShareKey, Known | None, Value | None]]:
        """The records that are new in a partition whose log begins at `start`, each with what was
        known before it.
        """
        seen_to = self.seen_to(index)
        holds(
            start <= seen_to,
            f"partition {index} of the state topic begins at {start} and was seen to {seen_to}: "
            f"what is in between was pruned unseen",
        )
        for offset, key, value in found:
            if offset >= seen_to:
                self._seen_to[index] = offset + 1
                before = self.states.get(key)
                yield key, before, value
                add(self.states, key, value)


def add(states: dict[ShareKey, Known], key: ShareKey, value: Value | None) -> None:
    """One more record."""
    if value is None:
        states.pop(key, None)
        return
    known = states.get(key)
    if isinstance(value, ShareSnapshotValue):
        known = states[key] = Known(value.start_offset, value.leader_epoch, value.state_epoch)
    elif known is None:
        return  # its snapshot was pruned: a newer one follows
    else:
        assert isinstance(value, ShareUpdateValue)
        if value.start_offset != KEEP:
            known.start = value.start_offset
        if value.leader_epoch != KEEP:
            known.leader_epoch = value.leader_epoch
    for batch in value.state_batches:
        said = batch.delivery_state, batch.delivery_count
        known.records.update(dict.fromkeys(range(batch.first_offset, batch.last_offset + 1), said))
    for offset in [offset for offset in known.records if offset < known.start]:
        del known.records[offset]


def check_equal(
    what: str, found: Mapping[ShareKey, Known], wanted: Mapping[ShareKey, Known]
) -> None:
    for key in wanted.keys() | found.keys():
        holds(
            found.get(key) == wanted.get(key),
            f"{key.text}: {what}: {found.get(key)} in the place of {wanted.get(key)}",
        )
