"""What waits at a partition, as the partition sees it.

* An `AppendWaiter` waits until its staged batch is written, and then durable or committed.
* A `ReadWaiter` is notified when there may be more to read.
* A deletion waits for the log start of every live replica.

A waiter decides nothing for the partition, and the partition knows nothing about the request behind
it. While it is called a waiter may stage, register or leave. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from penstock.base.errors import ApiError, ErrorCode


class AppendWaiter(Protocol):
    """Waits for one staged batch. Exactly one of `appended` and `failed` is called, once."""

    @property
    def outlives_leadership(self) -> bool:
        """Whether the wait goes on when another broker leads."""

    def waits(self) -> None:
        """The batch is written, but not yet durable or committed as its acks ask."""

    def appended(self) -> None:
        """The batch is what its acks ask for."""

    def failed(self, code: ErrorCode, message: str) -> None:
        """The batch was not written, or will not be committed as far as this node knows."""


ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1

Entry: TypeAlias = tuple[int, int, AppendWaiter]
"""The offset after the batch, the acks asked for, and the waiter."""


class AppendWaiters:
    """The appends of a partition, until their batches are what their acks ask for."""

    __slots__ = ("_undecided", "_waiting", "unwritten")

    def __init__(self) -> None:
        self.unwritten: deque[Entry] = deque()
        """Staged and not yet written."""
        self._waiting: deque[Entry] = deque()
        """Written, not yet durable or committed as asked; in the order of offsets."""
        self._undecided: deque[Entry] = deque()
        """Likewise, but appended under an earlier leadership of this node."""

    def written(self, end: int, durable: int, committed: int) -> bool:
        """What was staged is in the log up to `end`, durable and committed as far as said: notify
        its waiters. Whether some of them wait on: both offsets may have moved meanwhile.
        """
        unwritten = self.unwritten
        wait_on = False
        while unwritten and unwritten[0][0] <= end:
            entry = unwritten.popleft()
            acks = entry[1]
            if acks == ACKS_NONE or entry[0] <= (committed if acks == ACKS_ALL else durable):
                entry[2].appended()
            else:
                wait_on = True
                self.add(*entry)
                entry[2].waits()
        return wait_on

    def not_written(self, code: ErrorCode, message: str) -> None:
        """What was staged will not be written."""
        unwritten, self.unwritten = self.unwritten, deque()
        for entry in unwritten:
            entry[2].failed(code, message)

    def add(self, end_offset: int, acks: int, waiter: AppendWaiter) -> None:
        _insert(self._waiting, (end_offset, acks, waiter))

    def acknowledge(self, acknowledges: Callable[[int, int], bool]) -> None:
        """Notify the waiters whose offsets have been reached. They are in order: the first that is
        not reached ends it.
        """
        if not self._waiting and not self._undecided:
            return  # most often: what acks=1 asks for holds as soon as it is written
        for waiting in (self._waiting, self._undecided):
            while waiting and acknowledges(waiting[0][0], waiting[0][1]):
                waiting.popleft()[2].appended()

    def leadership_lost(self, code: ErrorCode, message: str) -> None:
        """Fail those whose wait does not go on under another leader."""
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            if entry[2].outlives_leadership:
                _insert(self._undecided, entry)
            else:
                entry[2].failed(code, message)

    def cut(self, end_offset: int, code: ErrorCode, message: str) -> None:
        """The log was truncated: fail the waiters whose batches are gone."""
        for waiting in (self._waiting, self._undecided):
            while waiting and waiting[-1][0] > end_offset:
                waiting.pop()[2].failed(code, message)

    def give_up_undecided(self, code: ErrorCode, message: str) -> None:
        undecided, self._undecided = self._undecided, deque()
        for entry in undecided:
            entry[2].failed(code, message)

    def give_up_commits(self, durable: int, code: ErrorCode, message: str) -> None:
        """Fail those that wait for other replicas alone. What is not on the disk as it has to be
        (above `durable`) waits on.
        """
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            if entry[1] == ACKS_ALL and entry[0] <= durable:
                entry[2].failed(code, message)
            else:
                self._waiting.append(entry)
        self.give_up_undecided(code, message)

    def fail(self, code: ErrorCode, message: str, acks: int | None = None) -> None:
        """Fail all waiters of this leadership, or those that asked for `acks`."""
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            if acks is None or entry[1] == acks:
                entry[2].failed(code, message)
            else:
                self._waiting.append(entry)


def _insert(waiting: deque[Entry], entry: Entry) -> None:
    place = len(waiting)
    # A batch that was sent again waits for the offset of the first, below that of later ones.
    while place and waiting[place - 1][0] > entry[0]:
        place -= 1
    waiting.insert(place, entry)


MOVED: Final = 0
"""The end of what the reader may read has moved, by what has come in."""
RELEASED: Final = 1
"""Likewise, and a transaction has ended: older records may have become readable with it."""
COMMITTED: Final = 2
"""For a follower: the high watermark has moved. The next answer says so; none is made for it."""
CHANGED: Final = 3
"""Something else has changed, and the reader has to answer now."""


class ReadWaiter(Protocol):
    """A reader that is registered at a partition."""

    @property
    def read_committed(self) -> bool:
        """Whether open transactions bound what it reads."""

    def moved(self, bytes_in: int, why: int) -> None:
        """`bytes_in` is the partition's count of bytes that were ever appended; `why` is `MOVED`,
        `RELEASED`, `COMMITTED` or `CHANGED`.
        """

    def left(self) -> None:
        """The partition leaves this node: the reader is no longer registered."""


class Readers:
    """The readers that are registered at a partition."""

    __slots__ = ("consumers", "followers")

    def __init__(self) -> None:
        self.consumers: dict[ReadWaiter, None] = {}
        """Notified when the high watermark moves; with read_committed, when the last stable offset
        does.
        """
        self.followers: dict[ReadWaiter, None] = {}
        """Notified when the log end moves."""

    def add(self, reader: ReadWaiter, *, follower: bool) -> None:
        (self.followers if follower else self.consumers)[reader] = None

    def remove(self, reader: ReadWaiter) -> None:
        self.consumers.pop(reader, None)
        self.followers.pop(reader, None)

    def log_grew(self, bytes_in: int) -> None:
        for reader in list(self.followers):
            reader.moved(bytes_in, MOVED)

    def committed(self, bytes_in: int, *, stable_moved: bool, released: bool) -> None:
        """The high watermark has moved, and with it perhaps the last stable offset."""
        why = RELEASED if released and stable_moved else MOVED
        for reader in list(self.consumers):
            # With read_committed there may be no more to read than before.
            if stable_moved or not reader.read_committed:
                reader.moved(bytes_in, why)

    def notify_followers(self, bytes_in: int, *, prompt: bool) -> None:
        """The high watermark has moved. Followers learn it with their next answer; with `prompt`
        they are answered now.
        """
        for reader in list(self.followers):
            reader.moved(bytes_in, CHANGED if prompt else COMMITTED)

    def changed(self, bytes_in: int) -> None:
        for reader in [*self.consumers, *self.followers]:
            reader.moved(bytes_in, CHANGED)

    def dismiss(self) -> None:
        """The partition leaves this node."""
        for reader in [*self.consumers, *self.followers]:
            reader.left()
        self.consumers.clear()
        self.followers.clear()


class DeletionWaiters:
    """Requests that wait for the log start of every live replica to reach an offset."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, offset: int) -> asyncio.Future[None]:
        """Done when every live replica has moved its log start to `offset`."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, done))
        return done

    def reached(self, low_watermark: int) -> None:
        waiting = []
        for offset, done in self._waiting:
            if done.done():
                continue  # given up
            if offset <= low_watermark:
                done.set_result(None)
            else:
                waiting.append((offset, done))
        self._waiting = waiting

    def fail(self, code: ErrorCode, message: str) -> None:
        waiting, self._waiting = self._waiting, []
        for _, done in waiting:
            if not done.done():
                done.set_exception(ApiError(code, message))
