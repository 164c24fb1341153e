"""Group commit: one fsync round for everything that waits for the disk.

A partition asks to be flushed; the round that starts next takes all that have asked by then, in one
worker thread, while new requests gather for the round after. So fsync before every acknowledgement
costs one disk write for many appends. Owned by the event loop's thread; only `FlushTask.run` is
called in the worker.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from penstock.base.errors import InvariantBroken, StorageError
from penstock.log.flush import FlushTask, flush_begin, flush_done
from penstock.log.log import Log


class Flushable(Protocol):
    """A partition, as the flusher sees it."""

    log: Log

    def flushed(self, offset: int) -> None:
        """Everything below `offset` is durable."""

    def flush_failed(self, message: str) -> None:
        """The disk has refused."""

    def stop(self, reason: str) -> None:
        """An invariant is broken."""


class Flusher:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="flush")
        self._wanted: dict[Flushable, None] = {}
        self._rounds: asyncio.Task[None] | None = None
        self.rounds_total = 0

    def request(self, partition: Flushable) -> None:
        self._wanted[partition] = None
        if self._rounds is None:
            # The task begins after this loop turn, so that the whole turn's appends share a round.
            self._rounds = self._loop.create_task(self._run_rounds())

    async def _run_rounds(self) -> None:
        try:
            while self._wanted:
                await self._round()
        finally:
            self._rounds = None

    async def _round(self) -> None:
        wanted, self._wanted = self._wanted, {}
        tasks: list[tuple[Flushable, int, FlushTask]] = []
        for partition in wanted:
            try:
                # Has what is staged written before, so that it shares the round.
                tasks.append((partition, partition.log.cuts, flush_begin(partition.log)))
            except StorageError as e:
                partition.flush_failed(str(e))
            except InvariantBroken as e:
                partition.stop(str(e))
        await self._loop.run_in_executor(self._pool, _run_all, [task for *_, task in tasks])
        self.rounds_total += 1
        for partition, cuts, task in tasks:
            if partition.log.cuts != cuts and task.error is None:
                # What was synced is gone; what took its place since was not.
                self.request(partition)
                continue
            try:
                flush_done(partition.log, task)
                partition.flushed(task.up_to_offset)
            except StorageError as e:
                partition.flush_failed(str(e))
            except InvariantBroken as e:
                partition.stop(str(e))

    async def stop(self) -> None:
        """Finish what was asked for."""
        if self._rounds is not None:
            await self._rounds
        self._pool.shutdown()


def _run_all(tasks: list[FlushTask]) -> None:
    for task in tasks:
        task.run()
