"""The offset checkpoints of a data directory: recovery points and log starts, by partition.

They are noted here when they change, and written to their files now and then: by a driver in any
thread (`task`), or by whoever cannot wait (`write`).

Invariant: a recovery point in the file never covers what is not durable. One that rises may reach
the file late. One that falls (a log was truncated, or deleted and made anew) must be there before
the log grows again: a recovery after a crash would begin behind what was written since, and find
neither torn batches nor leader epochs there. So `lowered` gives the number of the change, and the
log does not grow before the file `holds` it.

Owned by the loop's thread, but for what `task` returns.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from threading import Lock
from typing import Final

from penstock.base.errors import CorruptRecord, StorageError
from penstock.base.ids import TopicPartition
from penstock.log.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_checkpoint,
    write_checkpoint,
)

logger = logging.getLogger("penstock.log")

NOTHING: Final = 0
"""The number of no change: every file holds it."""


class OffsetCheckpoint:
    """The offsets of one file."""

    __slots__ = ("_path", "_written", "changes", "offsets")

    def __init__(self, path: str) -> None:
        self._path = path
        self.changes = 1
        """How often the offsets have changed."""
        self._written = NOTHING
        """Up to which of its changes the file has been written."""
        try:
            self.offsets = read_checkpoint(path)
        except CorruptRecord as e:
            # Recovery then begins at the first segment: slower, never wrong.
            logger.warning("ignoring a damaged checkpoint: %s", e)
            self.offsets = {}

    def set(self, tp: TopicPartition, offset: int | None) -> bool:
        """Note the offset of a partition, or that it has none; whether that is a change."""
        if self.offsets.get(tp) == offset:
            return False
        self.changes += 1
        if offset is None:
            del self.offsets[tp]
        else:
            self.offsets[tp] = offset
        return True

    def holds(self, change: int) -> bool:
        return change <= self._written

    def write(self, change: int, offsets: dict[TopicPartition, int]) -> None:
        """In one thread at a time."""
        if change > self._written:  # else a later one was quicker
            write_checkpoint(self._path, offsets)
            self._written = change


class OffsetCheckpoints:
    __slots__ = ("_data_dir", "_log_starts", "_points", "_removed", "_writing", "on_lowered")

    def __init__(self, data_dir: str) -> None:
        self._data_dir = data_dir
        self._points = OffsetCheckpoint(os.path.join(data_dir, RECOVERY_POINT_CHECKPOINT))
        self._log_starts = OffsetCheckpoint(os.path.join(data_dir, LOG_START_OFFSET_CHECKPOINT))
        self._removed: dict[TopicPartition, int] = {}
        """Partitions whose removal may not be in the file, with the number of that change."""
        self._writing = Lock()
        """Held by the thread that writes."""
        self.on_lowered: Callable[[], None] = lambda: None
        """Called when a log waits for the file: a driver has it written soon, in a thread."""

    def recovery_point(self, tp: TopicPartition) -> int:
        return self._points.offsets.get(tp, 0)

    def log_start(self, tp: TopicPartition) -> int:
        return self._log_starts.offsets.get(tp, 0)

    def note(self, tp: TopicPartition, recovery_point: int, log_start: int | None) -> None:
        self._points.set(tp, recovery_point)
        self._log_starts.set(tp, log_start)

    def remove(self, tp: TopicPartition) -> None:
        """The partition's directory is gone; one of the same name may follow."""
        self._log_starts.set(tp, None)
        if self._points.set(tp, None):
            self._removed[tp] = self._points.changes
            self.on_lowered()

    def removal_of(self, tp: TopicPartition) -> int:
        """The change that a new log of this name has to wait for."""
        return self._removed.get(tp, NOTHING)

    def lowered(self, tp: TopicPartition, recovery_point: int) -> int:
        """A log was truncated below its recovery point; the change that it has to wait for."""
        self._points.set(tp, recovery_point)
        # Also without a change: a write that is under way may have an earlier, higher one.
        self._points.changes += 1
        self.on_lowered()
        return self._points.changes

    def holds(self, change: int) -> bool:
        """Whether the file of the recovery points has that change."""
        return self._points.holds(change)

    def task(self) -> Callable[[], None]:
        """What writes the files if they have changed, in any thread; StorageError if it cannot."""
        due = [
            (checkpoint, checkpoint.changes, dict(checkpoint.offsets))
            for checkpoint in (self._points, self._log_starts)
            if not checkpoint.holds(checkpoint.changes)
        ]
        self._removed = {tp: n for tp, n in self._removed.items() if not self._points.holds(n)}

        def write() -> None:
            try:
                with self._writing:
                    for checkpoint, change, offsets in due:
                        checkpoint.write(change, offsets)
            except OSError as e:
                raise StorageError(f"cannot write checkpoints in {self._data_dir}: {e}") from e

        return write

    def write(self) -> None:
        """Write the files here and now."""
        self.task()()
