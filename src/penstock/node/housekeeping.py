"""Housekeeping, which no request asks for: retention, deletion of what is consumed, expiry of
producers, flushes by time, checkpoints, removal of files, rotation of keys, recovery of unused
logs, and the task of compaction.

Each duty is a coroutine that sleeps for its interval and does one pass; a pass that fails is logged
and tried again at the next. What waits for the disk runs in a worker thread; what changes a log
runs on the loop, a few logs at a time, so that requests are served in between. Owned by the event
loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from penstock.base.errors import StorageError
from penstock.log.files import remove_paths
from penstock.node.compaction import Compaction
from penstock.node.encryption import Rewrapping
from penstock.serving.broker import Broker

log = logging.getLogger("penstock.node")

FLUSH_CHECK_S = 0.2
REMOVAL_CHECK_S = 1.0
RECOVERED_PER_PASS = 1
LOWERED_RETRY_S = 1.0
"""How long after a disk that refused."""


class Housekeeping:
    def __init__(self, broker: Broker, compaction: Compaction) -> None:
        self._broker = broker
        self._compaction = compaction
        self._tasks: list[asyncio.Task[None]] = []
        self._lowered = asyncio.Event()

    def start(self) -> None:
        config = self._broker.config
        checkpoint_s = config.log_flush_offset_checkpoint_interval_ms / 1000
        for duty in (self._retain, self._delete_consumed):
            self._every(lambda: self._broker.config.log_retention_check_interval_ms / 1000, duty)
        expiry_s = config.producer_id_expiration_check_interval_ms / 1000
        self._every(lambda: expiry_s, self._expire_producers)
        self._every(lambda: FLUSH_CHECK_S, self._flush_due)
        self._every(lambda: checkpoint_s, self._checkpoint)
        self._every(lambda: REMOVAL_CHECK_S, self._remove)
        self._broker.logs.checkpoints.on_lowered = self._lowered.set
        self._lowered.set()  # logs may have been truncated before, while the node started
        self._repeat(self._lowered.wait, self._checkpoint_lowered)
        rewrap_s = config.penstock_encryption_rewrap_interval_ms / 1000
        if rewrap_s and self._broker.logs.env.keys.provider is not None:
            self._every(lambda: rewrap_s, Rewrapping(self._broker.logs).run_once)
        self._tasks.append(asyncio.create_task(self._recover()))
        self._tasks.append(asyncio.create_task(self._compaction.run()))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _every(self, interval_s: Callable[[], float], duty: Callable[[], Awaitable[None]]) -> None:
        self._repeat(lambda: asyncio.sleep(interval_s()), duty)

    def _repeat(
        self, wait: Callable[[], Awaitable[object]], duty: Callable[[], Awaitable[None]]
    ) -> None:
        async def repeat() -> None:
            while True:
                await wait()
                try:
                    await duty()
                except Exception:
                    log.exception("a housekeeping duty failed and will be tried again")

        self._tasks.append(asyncio.create_task(repeat()))

    def _now_ms(self) -> int:
        return self._broker.clock.now_ms()

    async def _retain(self) -> None:
        """Apply retention, a few logs at a time."""
        for _ in self._broker.logs.retention_steps(self._now_ms()):
            await asyncio.sleep(0)

    async def _delete_consumed(self) -> None:
        """A duty of its own: it waits for other nodes."""
        await self._broker.consumed.run_once()

    async def _expire_producers(self) -> None:
        """Forget idle producers, a few logs at a time."""
        for _ in self._broker.logs.producer_steps(self._now_ms()):
            await asyncio.sleep(0)

    async def _flush_due(self) -> None:
        """Flush what `flush.ms` asks for, and closed segments, so that a recovery stays short."""
        for due in self._broker.logs.flush_due(self._now_ms()):
            partition = self._broker.replicas.hosted(due.topic_partition)
            if partition is not None:
                self._broker.flusher.request(partition)

    async def _checkpoint(self) -> None:
        await asyncio.to_thread(self._broker.logs.checkpoint_task())

    async def _checkpoint_lowered(self) -> None:
        """Followers that were truncated wait for their recovery points on the disk."""
        self._lowered.clear()
        try:
            await self._checkpoint()
        except StorageError:
            self._lowered.set()
            await asyncio.sleep(LOWERED_RETRY_S)
            raise

    async def _remove(self) -> None:
        """Free the disk space of deleted topics and segments."""
        paths = self._broker.logs.due_deletions(self._now_ms())
        if paths:
            await asyncio.to_thread(remove_paths, paths)

    async def _recover(self) -> None:
        """After an unclean stop: check the logs that have not been used yet, one at a time."""
        while self._broker.logs.recovery_pass(RECOVERED_PER_PASS):
            await asyncio.sleep(0)
