"""The core's mirror of the metadata log: where it begins and ends, and its leader epochs.

Invariants: `start_offset <= flushed_offset <= end_offset`; epochs and their start offsets rise;
the log begins at 0 or at the end of a snapshot, whose epoch is then the first one known.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from penstock.base.errors import invariant
from penstock.raft.types import OffsetAndEpoch


class LogMirror:
    __slots__ = (
        "_epochs",
        "_starts",
        "end_offset",
        "flushed_offset",
        "snapshot",
        "start_epoch",
        "start_offset",
    )

    def __init__(
        self,
        start: OffsetAndEpoch,
        end_offset: int,
        epochs: Iterable[tuple[int, int]],
        snapshot: OffsetAndEpoch | None,
    ) -> None:
        """`start`: (0, -1), or the snapshot that the log begins with; `epochs`: (epoch, first
        offset), oldest first. What is stored counts as flushed.
        """
        invariant(
            start.offset <= end_offset,
            f"the metadata log ends at {end_offset}, before its start {start.offset}",
        )
        self.start_offset, self.start_epoch = start
        self.end_offset = end_offset
        self.flushed_offset = end_offset
        self.snapshot = snapshot
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, first in epochs:
            self._note(epoch, first)

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, in the log or in the snapshot it begins with."""
        return self._epochs[-1] if self._epochs else self.start_epoch

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    def appended(self, epoch: int, first: int, last: int) -> None:
        invariant(
            first == self.end_offset and epoch >= self.last_epoch,
            f"a batch of epoch {epoch} at {first} does not follow the log's end {self.end}",
        )
        self._note(epoch, first)
        self.end_offset = last + 1

    def truncate(self, offset: int) -> None:
        invariant(
            self.start_offset <= offset <= self.end_offset,
            f"the log from {self.start_offset} to {self.end_offset} cannot be cut at {offset}",
        )
        while self._starts and self._starts[-1] >= offset:
            self._starts.pop()
            self._epochs.pop()
        self.end_offset = offset
        self.flushed_offset = min(self.flushed_offset, offset)

    def reset_to(self, snapshot: OffsetAndEpoch) -> None:
        """A fetched snapshot takes the place of the whole log."""
        self._epochs.clear()
        self._starts.clear()
        self.start_offset = self.end_offset = self.flushed_offset = snapshot.offset
        self.start_epoch = snapshot.epoch
        self.snapshot = snapshot

    def trim(self, start_offset: int) -> None:
        """The log now begins at `start_offset`, the end of a snapshot."""
        invariant(
            self.snapshot is not None and start_offset <= self.snapshot.offset,
            f"the log is trimmed to {start_offset}, beyond its latest snapshot {self.snapshot}",
        )
        if start_offset <= self.start_offset:
            return
        self.start_epoch = self.epoch_at(start_offset - 1)
        self.start_offset = start_offset
        at = bisect_right(self._starts, start_offset)
        keep = max(at - 1, 0)
        del self._epochs[:keep]
        del self._starts[:keep]
        if self._starts and self._starts[0] < start_offset:
            self._starts[0] = start_offset
        if self._starts and self._starts[0] >= self.end_offset:
            self._epochs.pop()
            self._starts.pop()

    def epoch_at(self, offset: int) -> int:
        """The epoch in which the record at `offset` was written."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else self.start_epoch

    def end_of(self, epoch: int) -> OffsetAndEpoch:
        """Where the largest epoch ends that is not above `epoch`; its epoch."""
        at = bisect_right(self._epochs, epoch)
        if not at:
            return OffsetAndEpoch(self.start_offset, max(self.start_epoch, 0))
        end = self._starts[at] if at < len(self._starts) else self.end_offset
        return OffsetAndEpoch(end, self._epochs[at - 1])

    def up_to_date(self, candidate: OffsetAndEpoch) -> bool:
        """Whether a log that ends like `candidate` is at least as complete as this one."""
        return (candidate.epoch, candidate.offset) >= (self.last_epoch, self.end_offset)

    def needs_snapshot(self, offset: int, epoch: int) -> bool:
        """Whether a replica at (`offset`, last `epoch`) cannot be served from this log."""
        if self.start_offset == 0:
            return False
        return (
            offset < self.start_offset
            or epoch < self.start_epoch
            or (offset == self.start_offset and epoch != self.start_epoch)
        )

    def divergence(self, offset: int, epoch: int) -> OffsetAndEpoch | None:
        """None when a log that ends at (`offset`, `epoch`) is a prefix of this one; else the end
        of the last epoch that both may have.
        """
        if offset == 0:
            return None
        end = self.end_of(epoch)
        return None if end.epoch == epoch and offset <= end.offset else end

    def _note(self, epoch: int, first: int) -> None:
        if not self._epochs or epoch > self._epochs[-1]:
            self._epochs.append(epoch)
            self._starts.append(first)
