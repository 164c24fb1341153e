"""What a coordinator asks its driver to do, and the sender of a request.

A coordinator changes its own memory at once and returns what must follow as an `Effects`: records
for its partition of the internal topic, answers, actions, timers. The driver appends the records of
one `Effects` as one batch; it sends the answers and runs the actions only when the records are
committed (below the high watermark). If the append fails, the driver throws the whole shard away
and replays the partition.

Invariant: one `Effects` is one batch. So its records belong to one producer at most, and a marker,
which is a batch of its own, excludes records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from penstock.base.errors import invariant
from penstock.wire.schema import Message

TimerKey: TypeAlias = tuple[str, ...]
"""The first part is the id of the group or the transactional id that set the timer; the rest is
chosen by the group or transaction.
"""

Action: TypeAlias = tuple[Any, ...]
"""Work outside the shard: a named tuple of the coordinator, which its driver knows how to run."""


class CoordinatorRecord(NamedTuple):
    """One record of the internal topic; a null value deletes what the key's last record set."""

    key: bytes
    value: bytes | None


class Caller(NamedTuple):
    """The sender of a request; `token` identifies the request to the driver."""

    token: int
    version: int
    client_id: str
    client_host: str
    sees: Callable[[str], bool] | None = None
    """Whether it may know of a topic; None: of all."""


class Reply(NamedTuple):
    """The answer to the request that came with `token`."""

    token: int
    response: Message


class SetTimer(NamedTuple):
    """Call `on_timer(key)` at `deadline_ms`; takes the place of a timer of the same key."""

    key: TimerKey
    deadline_ms: int


class CancelTimer(NamedTuple):
    """Forget the timer of `key`, if there is one."""

    key: TimerKey


class ProducerIdentity(NamedTuple):
    """The producer in whose transaction records are written."""

    producer_id: int
    producer_epoch: int


class EndTxnMarker(NamedTuple):
    """The end of a producer's transaction in this partition, as its coordinator orders it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int = 0
    """Of the transaction; from version 2 on its end has a greater epoch than its records."""


@dataclass(slots=True)
class Effects:
    """Everything that follows from one event, in order."""

    records: list[CoordinatorRecord] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    timers: list[SetTimer | CancelTimer] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    """Run when everything up to here is committed, after the answers."""
    producer: ProducerIdentity | None = None
    """The records are one batch of this producer's transaction."""
    marker: EndTxnMarker | None = None
    """Written in the place of records."""

    @classmethod
    def reply(cls, caller: Caller, response: Message) -> Effects:
        """Nothing but an answer."""
        return cls(replies=[Reply(caller.token, response)])

    def answer(self, caller: Caller, response: Message) -> None:
        self.replies.append(Reply(caller.token, response))

    def set_timer(self, key: TimerKey, deadline_ms: int) -> None:
        self.timers.append(SetTimer(key, deadline_ms))

    def cancel_timer(self, key: TimerKey) -> None:
        self.timers.append(CancelTimer(key))

    def extend(self, other: Effects) -> None:
        """What `other` asks for comes after what is here."""
        if other.writes:
            if not self.writes and self.producer is None:
                self.producer, self.marker = other.producer, other.marker
            invariant(
                other.producer == self.producer and other.marker == self.marker,
                "the records of one batch belong to one producer, and a marker stands alone",
            )
        self.records += other.records
        self.replies += other.replies
        self.timers += other.timers
        self.actions += other.actions

    def __add__(self, other: Effects) -> Effects:
        both = Effects(producer=self.producer)
        both.extend(self)
        both.extend(other)
        return both

    @property
    def writes(self) -> bool:
        """Whether something is appended to the partition."""
        return bool(self.records) or self.marker is not None

    def __bool__(self) -> bool:
        return bool(self.writes or self.replies or self.timers or self.actions)
