"""What happened in a run, in order: a running hash of everything, and the last lines for people.

Two runs of a seed are the same when their digests are. Whatever decides what happens next goes
through here: deliveries, faults, what clients saw, what nodes said.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable

from .paths import Paths

LINES_KEPT = 4000


class Trace:
    def __init__(self, now: Callable[[], float]) -> None:
        self.paths = Paths()
        self._hash = hashlib.blake2b(digest_size=8)
        self._now = now
        self.events = 0
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)
        self.echo: Callable[[str], None] | None = None
        self.record: Callable[[str], None] | None = None
        """Called with every event, for finding where two runs part."""

    def event(self, text: str) -> None:
        """Take an event into the hash; too many and too small to be shown."""
        self.events += 1
        entry = f"{self._now():.6f} {text}"
        self._hash.update(entry.encode())
        if self.record is not None:
            self.record(entry)

    def say(self, who: str, text: str) -> None:
        """An event that people read too."""
        self.event(f"{who} {text}")
        line = f"{self._now():10.4f} {who:8} {text}"
        self.lines.append(line)
        if self.echo is not None:
            self.echo(line)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
