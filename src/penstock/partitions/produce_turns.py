"""The turns of the produce path: what many requests have staged is written together.

Group append: what the requests of one loop turn stage is written with one system call per
partition at the end of the turn. While only one connection produces there is nothing to group,
and a request is written and answered at once (`_GROUPING_OFF_AFTER` lone turns switch back to
that).

A turn ends early when much is staged. Another thread then writes what is large of it, while the
loop receives and checks what comes next. (For both to write at a time would gain nothing where it
is the same file: the kernel lets one in after the other.)

Invariants:
* Nothing is acknowledged before it is written.
* Turns end in the order in which they were begun; so a partition's batches come into its log in
  the order of their offsets.
* A failed write fails every request that staged to that partition in the turn, also those that were
  recognised as duplicates of what was staged there, and those of all turns behind it.

Limits: `TURN_BYTES_MAX`, `WRITING_TURNS_MAX`. Owned by the event loop's thread; only
`WriteBeside.run` is called in the other one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeAlias

from penstock.base.errors import ErrorCode, InvariantBroken, StorageError
from penstock.log.write_beside import WriteBeside
from penstock.net.connection import Connection
from penstock.partitions.partition import Partition

if TYPE_CHECKING:
    from penstock.serving.produce import ProduceInFlight

log = logging.getLogger("penstock.partitions")

TURN_BYTES_MAX = 1024 * 1024
"""When so much is staged a turn ends early, for the other thread to write. With less at a time that
gains little: the two wait for each other, and for Python's lock, too often.
"""
WRITING_TURNS_MAX = 3
"""When so many are being written the loop waits for the disk, and all who produce wait with it."""
_GROUPING_OFF_AFTER = 32

Failures: TypeAlias = dict[Partition, str]
"""Partitions that could not be written, and why."""


class _Writing:
    """A turn that is being written."""

    __slots__ = ("done", "failed", "turn", "writes")

    def __init__(
        self, turn: list[ProduceInFlight], writes: dict[Partition, WriteBeside], failed: Failures
    ) -> None:
        self.turn = turn
        self.writes = writes
        """The other thread's."""
        self.failed = failed
        self.done = not writes


class ProduceTurns:
    def __init__(
        self, run_woken: Callable[[], None], on_failure: Callable[[Partition, Exception], None]
    ) -> None:
        """`run_woken` answers the fetches that an append made answerable."""
        self._run_woken = run_woken
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="log-write")
        self._turn: list[ProduceInFlight] = []
        self._writing: deque[_Writing] = deque()
        self._ending = False
        self.staged_bytes = 0
        """Of this turn; counted by who stages."""
        self._grouping = False
        self._lone_turns = 0
        self._last_connection: Connection | None = None

    def groups(self, connection: Connection) -> bool:
        """Whether a request of that connection is to `join` others, or to be written `alone`."""
        if self._grouping or self._writing:
            return True
        if connection is not self._last_connection:
            self._grouping = self._last_connection is not None
            self._last_connection = connection
        return False

    def alone(self, produce: ProduceInFlight) -> None:
        """Write and answer a request that has staged what it brought."""
        self.staged_bytes = 0
        self._write_here([produce])

    def join(self, produce: ProduceInFlight) -> None:
        """A request is about to stage what it brought; to be followed by `joined`."""
        if not self._turn:
            self._loop.call_soon(self._end_of_turn)
        self._turn.append(produce)

    def joined(self) -> None:
        if self.staged_bytes > TURN_BYTES_MAX:
            self._write_large()

    def write_all(self) -> None:
        """Write and answer all that is staged, and wait for what is being written; before a log is
        changed otherwise.
        """
        while self._turn or self._writing:  # an answer may let another request begin
            while self._writing:
                self._end_first()
            self._write_here(self._take())

    def stop(self) -> None:
        self.write_all()
        self._writer.shutdown()

    # -- the ends of turns ---------------------------------------------------------------------

    def _end_of_turn(self) -> None:
        if not self._writing:  # else it comes behind that
            self._write_here(self._take())

    def _take(self) -> list[ProduceInFlight]:
        turn, self._turn = self._turn, []
        self.staged_bytes = 0
        if len(turn) > 1:
            self._lone_turns = 0
        elif turn:
            self._lone_turns += 1
            if self._lone_turns >= _GROUPING_OFF_AFTER:
                self._grouping = False
                self._lone_turns = 0
                self._last_connection = turn[0].exchange.connection
        return turn

    def _write_here(self, turn: list[ProduceInFlight]) -> None:
        if not turn:
            return
        failed: Failures = {}
        for partition in _partitions(turn):
            try:
                partition.write_staged()
            except (StorageError, InvariantBroken) as e:
                self._failed(failed, partition, e)
        self._acknowledge(turn, failed)

    def _write_large(self) -> None:
        if len(self._writing) >= WRITING_TURNS_MAX:
            self._end_first()
        turn = self._take()
        writes: dict[Partition, WriteBeside] = {}
        failed: Failures = {}
        for partition in _partitions(turn):
            try:
                write = partition.log.begin_write()
                if write is None:
                    partition.write_staged()
                else:
                    writes[partition] = write
            except (StorageError, InvariantBroken) as e:
                self._failed(failed, partition, e)
        writing = _Writing(turn, writes, failed)
        self._writing.append(writing)
        if writes:
            self._writer.submit(self._run_beside, writing)
        self._end_done()

    def _run_beside(self, writing: _Writing) -> None:
        """In the other thread."""
        for write in writing.writes.values():
            write.run()
        writing.done = True
        self._loop.call_soon_threadsafe(self._written_beside)

    def _written_beside(self) -> None:
        self._end_done()
        self._end_of_turn()

    def _end_done(self) -> None:
        """End the turns that are written, up to the first that is not."""
        if self._ending:
            return  # an answer let another request begin: who gives the answers goes on with it
        self._ending = True
        try:
            while self._writing and self._writing[0].done:
                self._end_first()
        finally:
            self._ending = False

    def _end_first(self) -> None:
        """End the first turn that is being written, waiting for it if need be."""
        writing = self._writing.popleft()
        for partition, write in writing.writes.items():
            is_news = not write.ended
            try:
                partition.end_write(write)
            except (StorageError, InvariantBroken) as e:
                self._failed(writing.failed, partition, e)
                if is_news:
                    for produce in self._turn:  # what it has staged there is gone with it
                        produce.partition_failed(partition, ErrorCode.KAFKA_STORAGE_ERROR, str(e))
        self._acknowledge(writing.turn, writing.failed)

    def _failed(self, failed: Failures, partition: Partition, error: Exception) -> None:
        failed[partition] = str(error)
        self._on_failure(partition, error)

    def _acknowledge(self, turn: list[ProduceInFlight], failed: Failures) -> None:
        for produce in turn:
            for partition, message in failed.items():
                produce.partition_failed(partition, ErrorCode.KAFKA_STORAGE_ERROR, message)
            try:
                produce.acknowledge(self._loop)
            except Exception:
                # One answer that cannot be given must not cost the others of the turn theirs.
                log.exception("a Produce request could not be answered")
                produce.exchange.connection.abort()
        self._run_woken()


def _partitions(turn: list[ProduceInFlight]) -> dict[Partition, None]:
    """Where the requests of a turn have staged something, each once."""
    return {staged[0]: None for produce in turn for staged in produce.staged}
