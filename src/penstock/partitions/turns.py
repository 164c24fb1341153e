"""Turns of writing: what is staged in one turn of the event loop is written together.

A partition registers here when it has staged something (`add`). At the end of the turn it writes it
with one system call and notifies the waiters. While only one source appends there is nothing to
group: what it stages between `begin` and `end` is written by `end` (`_GROUPING_OFF_AFTER` turns
with one request each switch back to that).

A turn ends early when much is staged. A worker thread then does its large writes, while the loop
receives and checks the next requests. (Two threads writing the same file would gain nothing: the
kernel locks it.)

Invariant: a partition's batches come into its log in the order of their offsets, however many turns
are being written; the log itself sees to that (`log.background_write`).

Limits: `TURN_BYTES_MAX`, `WRITING_TURNS_MAX`. Owned by the event loop's thread; only
`BackgroundWrite.run` is called in the worker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from penstock.base.errors import StorageError
from penstock.log.background_write import BackgroundWrite

TURN_BYTES_MAX = 1024 * 1024
"""A turn with so much staged ends early and is written by the worker. Smaller writes gain little:
the two threads then wait too often for each other and for the GIL.
"""
WRITING_TURNS_MAX = 3
"""With so many turns in the worker the loop waits for the disk, and all producers with it."""
_GROUPING_OFF_AFTER: Final = 32


class Staging(Protocol):
    """A partition with something staged. It notifies the waiters, also of failures."""

    def write_staged(self) -> None:
        """Write what is staged, after what is being written."""

    def begin_write(self) -> BackgroundWrite | None:
        """Begin to write what is staged; None when that is not worth a worker; `StorageError` when
        the disk refuses. No waiter is notified yet.
        """

    def not_written(self, error: StorageError) -> None:
        """Notify the waiters that it was not written."""

    def end_write(self, write: BackgroundWrite) -> None:
        """Complete what the worker has written, waiting for it if need be."""


class _Writing:
    """A turn that the worker writes."""

    __slots__ = ("done", "writes")

    def __init__(self, writes: list[tuple[Staging, BackgroundWrite]]) -> None:
        self.writes = writes
        self.done = False

    def run(self) -> None:
        """In the worker."""
        for _, write in self.writes:
            write.run()
        self.done = True


class Turns:
    __slots__ = (
        "_at_once",
        "_bytes",
        "_ending",
        "_grouping",
        "_last_source",
        "_lone_turns",
        "_loop",
        "_requests",
        "_staged",
        "_then",
        "_worker",
        "_writes",
        "_writing",
    )

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="log-write")
        self._staged: dict[Staging, None] = {}
        self._bytes = 0  # staged in this turn
        self._requests = 0  # of this turn
        self._at_once = False
        self._writing: deque[_Writing] = deque()
        self._ending = False
        self._grouping = False
        self._lone_turns = 0
        self._last_source: object = None
        self._writes = (
            0  # loops over partitions that are being written or completed, one in another
        )
        self._then: Callable[[], None] | None = None

    # -- staging -------------------------------------------------------------------------------

    def begin(self, source: object) -> None:
        """`source` is about to stage; to be followed by `end`."""
        self._requests += 1
        if self._grouping or self._writing:
            self._last_source = source
            return
        if source is not self._last_source:
            self._grouping = self._last_source is not None
            self._last_source = source
        self._at_once = True

    def add(self, partition: Staging, size: int) -> None:
        """A partition has staged `size` bytes."""
        if not self._staged and not self._at_once:
            self._loop.call_soon(self._end_of_turn)
        self._staged[partition] = None
        self._bytes += size

    def end(self) -> None:
        if self._at_once:
            self._at_once = False
            self._requests = self._bytes = 0
            staged, self._staged = self._staged, {}
            self._write(staged)
        elif self._bytes > TURN_BYTES_MAX:
            self._write_large()

    def after_writes(self, then: Callable[[], None]) -> bool:
        """Whether partitions are being written now: then `then` is called after the last of them,
        with nothing else in between. There is one caller, the owner of the reads that wait.
        """
        if not self._writes:
            return False
        self._then = then
        return True

    # -- the ends of turns ---------------------------------------------------------------------

    def write_all(self) -> None:
        """Write all that is staged, and wait for what is being written."""
        while self._staged or self._writing:  # an acknowledgement may let another request begin
            while self._writing:
                self._end_first()
            self._write_here()

    def stop(self) -> None:
        self.write_all()
        self._worker.shutdown()

    def _end_of_turn(self) -> None:
        if not self._writing:  # else it comes behind that
            self._write_here()

    def _write_here(self) -> None:
        self._write(self._take())

    def _write(self, staged: Iterable[Staging]) -> None:
        self._writes += 1
        try:
            for partition in staged:
                partition.write_staged()
        finally:
            self._end_writes()

    def _end_writes(self) -> None:
        self._writes -= 1
        if not self._writes and self._then is not None:
            then, self._then = self._then, None
            then()

    def _take(self) -> dict[Staging, None]:
        staged, self._staged = self._staged, {}
        requests, self._requests = self._requests, 0
        self._bytes = 0
        if requests > 1:
            self._lone_turns = 0
        elif requests:
            self._lone_turns += 1
            if self._lone_turns >= _GROUPING_OFF_AFTER:
                self._grouping = False
                self._lone_turns = 0
        return staged

    def _write_large(self) -> None:
        if len(self._writing) >= WRITING_TURNS_MAX:
            self._end_first()
        writes: list[tuple[Staging, BackgroundWrite]] = []
        small: list[Staging] = []
        failed: list[tuple[Staging, StorageError]] = []
        for partition in self._take():
            try:
                write = partition.begin_write()
            except StorageError as e:
                failed.append((partition, e))
                continue
            if write is None:
                small.append(partition)
            else:
                writes.append((partition, write))
        if writes:
            self._hand_over(_Writing(writes))
        # A waiter may begin another request, which may wait for the writes begun here: so waiters
        # are notified only when the worker has them.
        for partition, error in failed:
            partition.not_written(error)
        self._write(small)
        self._end_done()

    def _hand_over(self, writing: _Writing) -> None:
        self._writing.append(writing)
        done = self._loop.run_in_executor(self._worker, writing.run)
        done.add_done_callback(self._worker_done)

    def _worker_done(self, done: asyncio.Future[None]) -> None:
        done.result()
        self._end_done()
        self._end_of_turn()

    def _end_done(self) -> None:
        """End the turns that are written, up to the first that is not."""
        if self._ending:
            return  # an acknowledgement let another request begin: the caller below goes on
        self._ending = True
        try:
            while self._writing and self._writing[0].done:
                self._end_first()
        finally:
            self._ending = False

    def _end_first(self) -> None:
        """End the first turn that is being written, waiting for it if need be."""
        self._writes += 1
        try:
            for partition, write in self._writing.popleft().writes:
                partition.end_write(write)
        finally:
            self._end_writes()
