"""Which logs have changed since the duties last looked, so that a duty costs what was done and not
what is stored: most of a hundred thousand logs are silent at any time.

A log notes itself once (`Log.stirred` says that it has) when it is opened, written to, flushed, cut
or given other settings, or when its high watermark moves. `look` hands the noted logs on to each
duty, which takes them at its own pace. A log that was closed or deleted since may still be among
them: whoever takes it looks whether it is still in use.

Owned by the loop's thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.log.log import Log


class LogChanges:
    __slots__ = ("_noted", "flushing", "shedding", "to_checkpoint", "watermarks")

    def __init__(self) -> None:
        self._noted: list[Log] = []
        self.flushing: dict[Log, None] = {}
        """May be due for a flush, now or when time has passed."""
        self.shedding: dict[Log, None] = {}
        """Have segments whose files are to be removed."""
        self.to_checkpoint: dict[Log, None] = {}
        """May have another recovery point or log start than was last written down."""
        self.watermarks: dict[Log, None] = {}
        """May have another high watermark than was last written down."""

    def note(self, log: Log) -> None:
        """Called by `log`, once until the next look."""
        self._noted.append(log)

    def look(self) -> None:
        """Hand on to the duties what was noted."""
        noted, self._noted = self._noted, []
        for log in noted:
            log.stirred = False
            self.flushing[log] = self.to_checkpoint[log] = self.watermarks[log] = None
            if log.deleted_segments:
                self.shedding[log] = None
