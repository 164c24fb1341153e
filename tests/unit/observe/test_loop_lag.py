"""The sampler sees a loop that is held up."""

from __future__ import annotations

import asyncio
import time

from penstock.observe.loop_lag import INTERVAL_S, loop_lag_histogram, sample_loop_lag
from penstock.observe.metrics import Registry

HELD_UP_S = 0.2
DEADLINE_S = 10.0


def test_a_held_up_loop_is_seen() -> None:
    registry = Registry()
    histogram = loop_lag_histogram(registry)

    async def run() -> None:
        task = asyncio.create_task(sample_loop_lag(histogram))
        await asyncio.sleep(0)
        time.sleep(INTERVAL_S + HELD_UP_S)  # what no code of ours may do
        deadline = time.monotonic() + DEADLINE_S
        while not histogram.count:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(run())
    assert histogram.sum_ns >= HELD_UP_S * 0.9 * 1e9
    assert b"penstock_event_loop_lag_seconds_count" in registry.render()
