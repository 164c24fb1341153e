"""A write of staged batches that runs in a worker thread while the loop stages the next ones.

States: begun (`Log.begin_write`, loop), run (any thread), ended (`Log.end_write`, loop). Only the
end changes the log's offsets: until then nobody reads what is being written, and nothing of it is
acknowledged.

Invariants: the writes of a log follow each other at its end and are ended in that order, in
whatever order they run; what is staged meanwhile comes after them. If one fails, all after it fail.
Before the log is changed in any other way, all of them are ended, waiting if necessary. After a
crash recovery cuts off what follows an unfinished write; none of it was acknowledged.
"""

from __future__ import annotations

from collections import deque
from threading import Lock

from penstock.base.errors import StorageError
from penstock.log.segment import LogSegment
from penstock.log.staging import StagedAppends


class BackgroundWrite:
    """One write. `ended` is set when it is in the log, or when `failure` says why it is not."""

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
        """The staged producer state that belongs to this write and to those before it."""
        self.ended = False
        self.failure: StorageError | None = None
        self._segment = segment
        self._first_offset = first_offset
        self._write = segment.begin_write(staged.buffers, staged.size, position)
        self._done = Lock()
        self._done.acquire()

    def run(self) -> None:
        """Write to the file; called once, in any thread."""
        try:
            self._write.run()
        finally:
            self._done.release()

    def wait(self) -> None:
        """Block until `run` has finished."""
        with self._done:
            return

    def finish(self, index_interval: int) -> None:
        """Make what was written part of the segment; OSError if the write failed."""
        self._segment.end_write(
            self._write, self.staged.batches, self._first_offset, index_interval
        )

    def end(self, failure: StorageError | None) -> None:
        self.ended, self.failure = True, failure
        self._segment.file.unpin()


class BackgroundWrites:
    """The writes of a log that are begun and not ended."""

    __slots__ = ("_begun", "size")

    def __init__(self) -> None:
        self._begun: deque[BackgroundWrite] = deque()
        self.size = 0
        """Their total size in bytes."""

    def __bool__(self) -> bool:
        return bool(self._begun)

    def begin(
        self,
        segment: LogSegment,
        staged: StagedAppends,
        log_end_offset: int,
        mark: tuple[int, int, int],
    ) -> BackgroundWrite:
        """Begin a write after all others, in the same segment; OSError if its file cannot be
        opened.
        """
        first_offset = self._begun[-1].staged.end_offset if self._begun else log_end_offset
        write = BackgroundWrite(segment, staged, segment.size + self.size, first_offset, mark)
        self._begun.append(write)
        self.size += staged.size
        return write

    def first(self) -> BackgroundWrite:
        """The oldest write, when it has run."""
        write = self._begun[0]
        write.wait()
        return write

    def end_first(self) -> None:
        """The batches of the oldest write are in the log."""
        write = self._begun.popleft()
        write.end(None)
        self.size -= write.staged.size
        undo, started, completed = write.mark
        for behind in self._begun:
            mark = behind.mark
            behind.mark = (mark[0] - undo, mark[1] - started, mark[2] - completed)

    def fail(self, failure: StorageError) -> None:
        """Drop all of them; when this returns, no thread writes to the segment any more."""
        for write in self._begun:
            write.wait()
            write.end(failure)
        self._begun.clear()
        self.size = 0
