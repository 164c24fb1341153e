"""A write of staged batches that another thread may do while the loop goes on staging.

States: begun (`Log.begin_write`), run (in any thread), ended (`Log.end_write`, in the loop's). Only
its end changes what the log says of itself, so until then nobody reads what is being written, and
nothing of it is acknowledged.

Invariants: a log's writes lie one behind the other at its end and end in that order, in whichever
order they are run; what is staged meanwhile comes behind them. If one fails, so does everything
behind it. Who changes the log otherwise ends them before, waiting if need be. After a crash what
lies behind a write that was not done is cut off by recovery, and was not acknowledged.
"""

from __future__ import annotations

from collections import deque
from threading import Lock

from penstock.base.errors import StorageError
from penstock.log.segment import LogSegment
from penstock.log.staging import StagedAppends


class WriteBeside:
    """One of them. `ended` once it is in the log, or `failure` says why it is not."""

    __slots__ = (
        "_done",
        "_first_offset",
        "_segment",
        "_write",
        "ended",
        "failure",
        "mark",
        "staged",
    )

    def __init__(
        self,
        segment: LogSegment,
        staged: StagedAppends,
        position: int,
        first_offset: int,
        mark: tuple[int, int, int],
    ) -> None:
        self.staged = staged
        self.mark = mark
        """How far what the producers' state has staged belongs to it and to writes before it."""
        self.ended = False
        self.failure: StorageError | None = None
        self._segment = segment
        self._first_offset = first_offset
        self._write = segment.begin_write(staged.buffers, staged.size, position)
        self._done = Lock()
        self._done.acquire()

    def run(self) -> None:
        """Write; to be called once, in any thread."""
        try:
            self._write.run()
        finally:
            self._done.release()

    def wait(self) -> None:
        """Wait until it has been run."""
        with self._done:
            return

    def take_up(self, index_interval: int) -> None:
        """What was written is the segment's from now on; OSError when the disk has refused."""
        self._segment.end_write(
            self._write, self.staged.batches, self._first_offset, index_interval
        )

    def end(self, failure: StorageError | None) -> None:
        self.ended, self.failure = True, failure
        self._segment.file.unpin()


class WritesBeside:
    """Those of a log that are begun and not ended."""

    __slots__ = ("_begun", "size")

    def __init__(self) -> None:
        self._begun: deque[WriteBeside] = deque()
        self.size = 0
        """Their bytes."""

    def __bool__(self) -> bool:
        return bool(self._begun)

    def begin(
        self,
        segment: LogSegment,
        staged: StagedAppends,
        log_end_offset: int,
        mark: tuple[int, int, int],
    ) -> WriteBeside:
        """One behind all others, in the same segment; OSError when that cannot be opened."""
        first_offset = self._begun[-1].staged.end_offset if self._begun else log_end_offset
        write = WriteBeside(segment, staged, segment.size + self.size, first_offset, mark)
        self._begun.append(write)
        self.size += staged.size
        return write

    def first(self) -> WriteBeside:
        """The first one, once it has been run."""
        write = self._begun[0]
        write.wait()
        return write

    def end_first(self) -> None:
        """Its batches are in the log."""
        write = self._begun.popleft()
        write.end(None)
        self.size -= write.staged.size
        undo, started, completed = write.mark
        for behind in self._begun:
            mark = behind.mark
            behind.mark = (mark[0] - undo, mark[1] - started, mark[2] - completed)

    def fail(self, failure: StorageError) -> None:
        """Nothing of them is kept; when this returns, none writes any more."""
        for write in self._begun:
            write.wait()
            write.end(failure)
        self._begun.clear()
        self.size = 0
