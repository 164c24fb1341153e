"""Waiting with a deadline, in place of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

CALL_SECONDS_MAX = 30.0


def eventually(check: Callable[[], T], seconds: float = CALL_SECONDS_MAX, every: float = 0.05) -> T:
    """Calls `check` until it returns something true; its last failure or value ends the wait."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            value = check()
            if value:
                return value
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline, f"still not so after {seconds} s: {check}"
        time.sleep(every)
