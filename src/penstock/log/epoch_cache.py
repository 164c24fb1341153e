"""Which leader epoch began at which offset: the partition's `leader-epoch-checkpoint`.

Entries rise in both epoch and start offset. The cache decides where a follower that diverged has to
cut its log, so an entry must be on disk no later than the recovery point covers its offset. Until
then a scan from the recovery point finds it again in the batches. So a new epoch does not wait for
the disk, which matters after a fail-over, when thousands of partitions begin one: the first entry
of a log is written without fsync, later ones not at all, and the next flush of the log syncs them
in its thread (`flush_begin`). An existing file is only replaced by one that is complete and synced,
or by a shorter one after the log was truncated.

Owned by the loop's thread, but for what `flush_begin` returns.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

from penstock.base.errors import CorruptRecord
from penstock.base.ids import NO_LEADER_EPOCH
from penstock.log.checkpoints import LEADER_EPOCH_CHECKPOINT, read_lines, write_lines
from penstock.log.files import TMP_SUFFIX, fsync_dir, fsync_path, unlink_if_exists

logger = logging.getLogger("penstock.log")

NO_OFFSET = -1
FLUSHED_SUFFIX = ".flushed" + TMP_SUFFIX
"""Suffix of the file that a flush writes before it replaces the old one."""


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochFileCache:
    """The leader epochs of one log, oldest first."""

    __slots__ = (
        "_epochs",
        "_flushed",
        "_flushes",
        "_flushing",
        "_lock",
        "_starts",
        "_writes",
        "dirty",
        "latest_epoch",
        "path",
    )

    def __init__(self, log_dir: str) -> None:
        self.path = os.path.join(log_dir, LEADER_EPOCH_CHECKPOINT)
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest_epoch = NO_LEADER_EPOCH
        self.dirty = False
        """Whether there is something for a flush to do."""
        self._writes = 0
        """How often the file was written outside of flushes; counted under the lock."""
        self._lock = Lock()
        self._flushes = self._flushed = 0
        """How many flushes were begun, and which of them was the latest that has ended."""
        self._flushing = Lock()
        """Held by a flush: a log may be flushed in two threads at once."""

    def load(self) -> bool:
        """Read the file; whether it says anything. If not, the batches have to (`log_loader`): a
        loss of power can damage what was written without fsync.
        """
        try:
            for line in read_lines(self.path):
                epoch, start = line.split(" ")
                self._assign(int(epoch), int(start))
        except (CorruptRecord, ValueError) as e:
            logger.warning("leader epochs of %s are lost, the file is damaged: %s", self.path, e)
            self._epochs.clear()
            self._starts.clear()
            unlink_if_exists(self.path)
        self._note_latest()
        return bool(self._epochs)

    @property
    def entries(self) -> list[EpochEntry]:
        return [EpochEntry(e, s) for e, s in zip(self._epochs, self._starts, strict=True)]

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` writes from `start_offset` on; entries in conflict are dropped."""
        if epoch < 0 or not self._assign(epoch, start_offset):
            return
        self._note_latest()
        if len(self._epochs) == 1:
            self._write_later()
        self.dirty = True

    def restore(self, epoch: int, start_offset: int) -> None:
        """Like `assign`, for batches that are in the log: recovery finds the entry again if it is
        not written.
        """
        if self._assign(epoch, start_offset):
            self._note_latest()
            self._write_later()

    def _assign(self, epoch: int, start: int) -> bool:
        epochs, starts = self._epochs, self._starts
        if epochs and epoch == epochs[-1] and start >= starts[-1]:
            return False
        while epochs and (epochs[-1] >= epoch or starts[-1] >= start):
            epochs.pop()
            starts.pop()
        epochs.append(epoch)
        starts.append(start)
        return True

    def _note_latest(self) -> None:
        self.latest_epoch = self._epochs[-1] if self._epochs else NO_LEADER_EPOCH

    def _lines(self) -> list[str]:
        return [f"{e} {s}" for e, s in zip(self._epochs, self._starts, strict=True)]

    def _write_later(self) -> None:
        """Write without fsync; if that fails, recovery finds the entries again."""
        self.dirty = True
        with self._lock:
            self._writes += 1
        try:
            write_lines(self.path, self._lines(), sync=False)
        except OSError as e:
            logger.warning("cannot write %s: %s", self.path, e)

    def flush_begin(self) -> Callable[[], None] | None:
        """What makes the entries durable, in any thread; None when they are."""
        if not self.dirty:
            return None
        self.dirty = False
        self._flushes += 1
        number, path, lines, writes = self._flushes, self.path, self._lines(), self._writes

        def flush() -> None:
            with self._flushing:
                if number > self._flushed:  # else a later one was quicker
                    self._flush(path, lines, writes)
                    self._flushed = number

        return flush

    def _flush(self, path: str, lines: list[str], writes: int) -> None:
        flushed = path + FLUSHED_SUFFIX
        write_lines(flushed, lines)
        with self._lock:
            if self._writes == writes:
                os.replace(flushed, path)
        # Else the log was cut off meanwhile, and what was written then is to be kept.
        unlink_if_exists(flushed)
        fsync_path(path)
        fsync_dir(os.path.dirname(path))

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the largest epoch at or below `epoch`, where it ends); (-1, -1) when that is unknown."""
        if epoch < 0 or not self._epochs or epoch > self._epochs[-1]:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        i = bisect_right(self._epochs, epoch)
        # Data below the first known epoch is deleted: the follower continues at its start.
        floor = self._epochs[i - 1] if i else epoch
        return floor, self._starts[i]

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch under which `offset` was written, or -1."""
        i = bisect_right(self._starts, offset)
        return self._epochs[i - 1] if i else NO_LEADER_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that start at or after `end_offset`."""
        if not self._starts or self._starts[-1] < end_offset:
            return
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
        self._note_latest()
        self._write_later()

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that ended before `start_offset`; the one it lies in now begins there."""
        i = bisect_right(self._starts, start_offset)
        if not i or (i == 1 and self._starts[0] == start_offset):
            return
        del self._starts[: i - 1]
        del self._epochs[: i - 1]
        self._starts[0] = start_offset
        self._write_later()

    def clear(self) -> None:
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self._note_latest()
            self._write_later()

    def move_to(self, log_dir: str) -> None:
        self.path = os.path.join(log_dir, LEADER_EPOCH_CHECKPOINT)
