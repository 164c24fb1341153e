"""Whether a log takes writes, and what its reads have found damaged.

When the disk refuses a write, the log refuses further ones for a short pause, so that a full disk
is not asked thousands of times a second; then the next write tries, and its success heals the log.
What cannot heal by itself (flushed data is damaged, the kernel lost written pages) stays refused
until a restart. Reads are never affected.
"""

from __future__ import annotations

import logging

from penstock.base.errors import CorruptRecord, StorageError
from penstock.log.limits import WRITE_RETRY_PAUSE_MS

logger = logging.getLogger("penstock.log")

_NEVER_MS = 1 << 62


class WriteHealth:
    """The state of one log's writes; changes go to the log `penstock.log`."""

    __slots__ = ("_retry_at_ms", "failure", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.failure: str | None = None
        """Why writes are refused; None if they are not."""
        self._retry_at_ms = 0

    def admit(self, now_ms: int) -> None:
        """Let a write through if the pause after a failure is over; `StorageError` otherwise."""
        if self.failure is not None and now_ms < self._retry_at_ms:
            raise StorageError(f"{self.name} refuses writes: {self.failure}")

    def fail(self, error: Exception, now_ms: int) -> StorageError:
        """Refuse writes until the pause is over; the error to raise."""
        what = (isinstance(error, OSError) and error.strerror) or str(error)
        if self.failure is None:
            logger.error("log %s refuses writes; reads continue: %s", self.name, what)
        self.failure = what
        self._retry_at_ms = max(self._retry_at_ms, now_ms + WRITE_RETRY_PAUSE_MS)
        return StorageError(f"{self.name} cannot be written: {what}")

    def fail_for_good(self, why: str) -> None:
        """Refuse writes until the node is restarted with repaired files."""
        logger.error(
            "log %s refuses writes until it is repaired; reads continue: %s", self.name, why
        )
        self.failure = why
        self._retry_at_ms = _NEVER_MS

    @property
    def for_good(self) -> bool:
        """Whether only a restart can allow writes again."""
        return self._retry_at_ms == _NEVER_MS

    def heal(self) -> None:
        """A write has succeeded."""
        logger.warning("log %s takes writes again after: %s", self.name, self.failure)
        self.failure = None


class ReadDamage:
    """Logs the damage that reads of one log have found: once, however often it is read."""

    __slots__ = ("_last", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._last = ""

    def report(self, error: CorruptRecord) -> None:
        """In any thread."""
        if str(error) != self._last:
            self._last = str(error)
            logger.error("log %s holds damaged data, which is not served: %s", self._name, error)
