"""What is sent unread: how often, and the time when it no longer is."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.clock import SystemClock
from penstock.base.file_region import FileRegion
from penstock.log.limits import FRESH_S
from penstock.log.log import Log


class Regions:
    """Counts the stretches of segment files that are sent unread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        real = FileRegion.__init__

        def counted(region: FileRegion, *args: Any) -> None:
            self.made += 1
            real(region, *args)

        monkeypatch.setattr(FileRegion, "__init__", counted)


class _Later:
    """The system's clock, put forward; it cannot inherit from a class that may be compiled."""

    def now_ms(self) -> int:
        return SystemClock().now_ms()

    def monotonic(self) -> float:
        return SystemClock().monotonic() + FRESH_S + 1


def grow_old(log: Log) -> None:
    """What was written until now is no longer fresh, in all logs beside this one."""
    log.segments.active.file._cache.clock = _Later()
