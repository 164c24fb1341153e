"""The node's duties that nobody asks for: retention, flushing by time, checkpoints, removal of
files.

Each duty is a coroutine that sleeps for its interval and does one pass; a pass that fails
is logged and tried again at the next. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from penstock.broker.broker import Broker
from penstock.node.compaction import Compaction

log = logging.getLogger("penstock.node")

FLUSH_LOOK_S = 0.2
RECOVERY_PAUSE_S = 0.01
RECOVERED_PER_PASS = 1


class Housekeeping:
    def __init__(self, broker: Broker, compaction: Compaction) -> None:
        self._broker = broker
        self._compaction = compaction
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        config = self._broker.config
        logs = self._broker.logs
        now_ms = self._broker.clock.now_ms
        self._every(
            lambda: self._broker.config.log_retention_check_interval_ms / 1000,
            lambda: logs.retention_pass(now_ms()),
        )
        self._every(lambda: FLUSH_LOOK_S, self._flush_due)
        self._every(lambda: config.log_flush_offset_checkpoint_interval_ms / 1000, logs.checkpoint)
        self._every(lambda: 1.0, lambda: logs.delete_pass(now_ms()))
        self._tasks.append(asyncio.create_task(self._recover()))
        self._tasks.append(asyncio.create_task(self._compaction.run()))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _every(self, interval_s: Callable[[], float], duty: Callable[[], object]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(interval_s())
                try:
                    self._broker.write_turn()
                    duty()
                except Exception:
                    log.exception("a housekeeping duty failed and will be tried again")

        self._tasks.append(asyncio.create_task(repeat()))

    def _flush_due(self) -> None:
        """Flush what `flush.ms` asks for, and closed segments, so that a recovery stays short."""
        due = {log.topic_partition for log in self._broker.logs.flush_due(self._now())}
        for partition in self._broker.replicas.open_partitions():
            if (partition.topic, partition.index) in due:
                self._broker.flusher.request(partition)

    def _now(self) -> int:
        return self._broker.clock.now_ms()

    async def _recover(self) -> None:
        """After an unclean stop: check the logs that nobody has used yet, a little at a time."""
        while self._broker.logs.recovery_pass(RECOVERED_PER_PASS):
            await asyncio.sleep(RECOVERY_PAUSE_S)
