"""How late the event loop is: the first number to check when everything is slow.

A coroutine sleeps for a fixed time and records how much later than asked it was woken. The
resolution is the loop's: uvloop's timers count whole milliseconds, so an idle loop shows up to one.
"""

from __future__ import annotations

import asyncio
import time

from penstock.observe.metrics import Histogram, Registry
from penstock.observe.table import EVENT_LOOP_LAG_SECONDS

INTERVAL_S = 0.1


def loop_lag_histogram(registry: Registry) -> Histogram:
    return registry.histogram(EVENT_LOOP_LAG_SECONDS)


async def sample_loop_lag(histogram: Histogram) -> None:
    """Sample until cancelled; the caller owns the task."""
    while True:
        due = time.monotonic() + INTERVAL_S
        await asyncio.sleep(INTERVAL_S)
        histogram.observe(max(0.0, time.monotonic() - due))
