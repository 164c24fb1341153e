"""The clock by which connections are idle, which a test puts on instead of waiting."""

from __future__ import annotations

import time

import pytest

from penstock.net import connection, exchange, server
from unit.net.served import Served, until

IDLE_MS = 600_000  # much longer than a test takes: only the test's clock gets there
NS_PER_MS = 1_000_000


class Clock:
    """For all listeners of a test, which then look at it often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead_ns = 0
        monkeypatch.setattr(server, "monotonic_ns", self)
        monkeypatch.setattr(connection, "monotonic_ns", self)
        monkeypatch.setattr(exchange, "monotonic_ns", self)
        monkeypatch.setattr(server, "IDLE_SWEEP_SECONDS_MAX", 0.01)

    def __call__(self) -> int:
        return time.monotonic_ns() + self._ahead_ns

    def pass_ms(self, milliseconds: int) -> None:
        self._ahead_ns += milliseconds * NS_PER_MS


async def swept(net: Served, times: int = 3) -> None:
    """Returns when the listener has looked for idle connections so many times more."""
    for _ in range(times):
        before = net.server._sweeper
        await until(lambda before=before: net.server._sweeper is not before)  # type: ignore[misc]
