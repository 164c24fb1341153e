"""The duties of a node, from their first moment on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from penstock.base.clock import SystemClock
from penstock.base.ids import TopicPartition
from penstock.config.broker_config import BrokerConfig
from penstock.config.log_config import LogConfig
from penstock.log.manager import LogManager
from penstock.node.housekeeping import Housekeeping

PARTITION = TopicPartition("topic", 0)


class Idle:
    """A compaction that has nothing to do."""

    async def run(self) -> None:
        await asyncio.Event().wait()


def test_a_log_truncated_before_the_start_does_not_wait_for_the_next_checkpoint(
    tmp_path: Path,
) -> None:
    """A follower does so as soon as it fetches, which may be before the duties begin."""

    async def test() -> None:
        logs = LogManager(str(tmp_path), lambda _: LogConfig())
        change = logs.checkpoints.lowered(PARTITION, 3)
        broker: Any = SimpleNamespace(
            config=BrokerConfig(), logs=logs, clock=SystemClock(), replicas=None, flusher=None
        )
        duties = Housekeeping(broker, cast(Any, Idle()))
        duties.start()
        try:
            async with asyncio.timeout(10):
                while not logs.checkpoints.holds(change):
                    await asyncio.sleep(0.01)
        finally:
            await duties.stop()
            logs.close()

    asyncio.run(test())
