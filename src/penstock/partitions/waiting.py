"""Who waits at a partition: for appended records to be durable or committed, and for deleted
records to be gone everywhere. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from penstock.base.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from penstock.partitions.partition import Partition


class AppendWaiter(Protocol):
    """Who waits for appended records to be durable or committed."""

    @property
    def outlives_leadership(self) -> bool:
        """Whether the wait goes on when another broker leads."""

    def partition_done(self) -> None:
        """They are."""

    def partition_failed(self, partition: Partition, code: ErrorCode, message: str) -> None:
        """They never will be, as far as this node knows."""


class AppendWaiters:
    """Those who wait, in the order of their offsets."""

    __slots__ = ("_partition", "_waiting")

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._waiting: deque[tuple[int, int, AppendWaiter]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, end_offset: int, acks: int, waiter: AppendWaiter) -> None:
        waiting = self._waiting
        place = len(waiting)
        # A batch that was sent again waits for the offset of the first, below that of later ones.
        while place and waiting[place - 1][0] > end_offset:
            place -= 1
        waiting.insert(place, (end_offset, acks, waiter))

    def acknowledge(self, acknowledges: Callable[[int, int], bool]) -> None:
        """Tell those whose offsets have been reached; the first who must wait on holds up the
        rest.
        """
        waiting = self._waiting
        while waiting and acknowledges(waiting[0][0], waiting[0][1]):
            waiting.popleft()[2].partition_done()

    def hand_over(self, undecided: AppendWaiters) -> None:
        """Leadership is lost: move those who wait on for its outcome."""
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            (undecided if entry[2].outlives_leadership else self).add(*entry)

    def fail_beyond(self, end_offset: int, code: ErrorCode, message: str) -> None:
        """The log was cut back: tell those who wait for what is gone."""
        waiting = self._waiting
        while waiting and waiting[-1][0] > end_offset:
            waiting.pop()[2].partition_failed(self._partition, code, message)

    def fail(self, code: ErrorCode, message: str, acks: int | None = None) -> None:
        """Tell all, or all who asked for `acks`, that they wait in vain."""
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            if acks is None or entry[1] == acks:
                entry[2].partition_failed(self._partition, code, message)
            else:
                self._waiting.append(entry)


class DeletionWaiters:
    """Requests that wait for the log start of every live replica to reach an offset."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, offset: int) -> asyncio.Future[None]:
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
