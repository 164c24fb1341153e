"""Which logs have changed since the last housekeeping pass.

Most of a hundred thousand logs are idle at any time: a pass costs what was changed, not what is
stored. A log marks itself as changed, once until the next `collect`, when it is opened, written to,
flushed, truncated or reconfigured, or when its high watermark moves. `collect` gives the marked
logs to every housekeeping duty, each of which takes them at its own pace. A log that was closed or
deleted since may still be in a duty's set: the duty checks that.

Owned by the loop's thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.log.log import Log


class LogChanges:
    __slots__ = ("_marked", "flushing", "removing", "to_checkpoint", "watermarks")

    def __init__(self) -> None:
        self._marked: list[Log] = []
        self.flushing: dict[Log, None] = {}
        """May be due for a flush, now or when time has passed."""
        self.removing: dict[Log, None] = {}
        """Have segments whose files are to be removed."""
        self.to_checkpoint: dict[Log, None] = {}
        """May have another recovery point or log start than was last written down."""
        self.watermarks: dict[Log, None] = {}
        """May have another high watermark than was last written down."""

    def add(self, log: Log) -> None:
        """`log` has changed; it calls this once until the next `collect`."""
        self._marked.append(log)

    def collect(self) -> None:
        """Give the marked logs to the duties."""
        marked, self._marked = self._marked, []
        for log in marked:
            log.marked_changed = False
            self.flushing[log] = self.to_checkpoint[log] = self.watermarks[log] = None
            if log.deleted_segments:
                self.removing[log] = None
