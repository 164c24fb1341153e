"""What a coordinator asks its driver to do, and who asked the coordinator.

A coordinator changes its own memory at once and says in an `Effects` what must follow: records
for its partition of the internal topic, answers, timers. The driver appends the records of one
`Effects` as one batch and gives its answers only when they are committed (below the high
watermark). If the append fails, the driver throws the whole shard away and replays the partition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from penstock.wire.schema import Message

TimerKey: TypeAlias = tuple[str, ...]
"""The first part is the id of the group that set the timer; the rest is the group's own matter."""


class CoordinatorRecord(NamedTuple):
    """One record of the internal topic; a null value takes back what the key's last record said."""

    key: bytes
    value: bytes | None


class Caller(NamedTuple):
    """Who sent a request; `token` names the request towards the driver."""

    token: int
    version: int
    client_id: str
    client_host: str


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


@dataclass(slots=True)
class Effects:
    """Everything that follows from one event, in order."""

    records: list[CoordinatorRecord] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    timers: list[SetTimer | CancelTimer] = field(default_factory=list)

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
        self.records += other.records
        self.replies += other.replies
        self.timers += other.timers

    def __add__(self, other: Effects) -> Effects:
        return Effects(
            self.records + other.records,
            self.replies + other.replies,
            self.timers + other.timers,
        )

    def __bool__(self) -> bool:
        return bool(self.records or self.replies or self.timers)
