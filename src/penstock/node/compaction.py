"""Drives compaction: picks the log that needs it most, has the child process clean it, swaps
the result in.

The decisions are `log.cleaner`'s, the work is done in child processes behind `log.cleaner_client`;
here is only the loop between them. `log.cleaner.threads` logs are cleaned at a time, each by a
worker with a child of its own. First dirty offsets are kept in `cleaner-offset-checkpoint`, so that
a restart continues where it was.

Invariants: retention ignores a log while it is being cleaned or swapped (`Log.cleaning`); a result
is dropped when its log was deleted or truncated meanwhile; a node that stops ends the swap first.
Owned by the event loop's thread, which never waits for the disk: what does runs in a worker thread,
and memory is changed in between (`log.replacement` has the steps).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from time import monotonic_ns

from penstock.base.errors import StorageError
from penstock.base.ids import TopicPartition
from penstock.log.checkpoints import CLEANER_OFFSET_CHECKPOINT, read_checkpoint, write_checkpoint
from penstock.log.cleaner import LogToClean, clean_job, cleanable, filthiest
from penstock.log.cleaner_client import CleanAborted, Cleaner
from penstock.log.cleaner_files import remove_cleaned
from penstock.log.cleaner_job import CleanedGroup, CleanJob, CleanResult
from penstock.log.cleaner_view import log_state, producer_ends, segment_keys
from penstock.log.flush import flush_begin, flush_done
from penstock.log.log import Log
from penstock.net.turn import Turn
from penstock.observe.standard import CleanerMetrics
from penstock.serving.broker import Broker

log = logging.getLogger("penstock.node")

WORKERS_CHECK_S = 1.0
"""How soon a change of `log.cleaner.threads` counts."""


class Compaction:
    def __init__(self, broker: Broker, metrics: CleanerMetrics) -> None:
        self._broker = broker
        self._metrics = metrics
        self._uncleanable: dict[str, str] = {}
        """Directory of every log that was found corrupt, and what was found."""
        self._workers: dict[int, asyncio.Task[None]] = {}
        self._path = os.path.join(broker.logs.data_dir, CLEANER_OFFSET_CHECKPOINT)
        self._first_dirty = self._stored_offsets()
        self._writing = asyncio.Lock()
        """Of the checkpoint."""
        self._swaps: set[asyncio.Task[bool]] = set()
        """Carry out the swaps of cleanings."""

    async def run(self) -> None:
        """Until cancelled: have as many workers as `log.cleaner.threads` says."""
        while True:
            for number in range(self._broker.config.log_cleaner_threads):
                if number not in self._workers or self._workers[number].done():
                    self._workers[number] = asyncio.create_task(self._work(number))
            await asyncio.sleep(WORKERS_CHECK_S)

    async def _work(self, number: int) -> None:
        """Clean what is due, rest when nothing is; until there are to be fewer workers."""
        cleaner = Cleaner()
        cleaner.uncleanable = self._uncleanable
        try:
            while number < self._broker.config.log_cleaner_threads:
                if not (self._broker.config.log_cleaner_enable and await self._clean_next(cleaner)):
                    await asyncio.sleep(self._broker.config.log_cleaner_backoff_ms / 1000)
        finally:
            await cleaner.stop()

    async def stop(self) -> None:
        for worker in self._workers.values():
            worker.cancel()
        await asyncio.gather(*self._workers.values(), return_exceptions=True)
        # What fails now is repeated after the next start.
        await asyncio.gather(*self._swaps, return_exceptions=True)

    async def _clean_next(self, cleaner: Cleaner) -> bool:
        """Clean the log that needs it most; whether there was one."""
        todo = filthiest([candidate async for candidate in self._candidates()])
        if todo is None:
            return False
        tp = todo.log.topic_partition
        todo = self._candidate(tp, self._broker.clock.now_ms())
        if todo is None or not todo.is_due:
            return True  # it has changed since it was picked
        started_ns = monotonic_ns()
        try:
            await self._clean(cleaner, tp, todo)
            self._metrics.duration.observe_ns(monotonic_ns() - started_ns)
        except CleanAborted:
            return True
        except (StorageError, OSError) as e:
            # A checkpoint that cannot be written costs no more than cleaning again.
            if tp.topic not in self._broker.metadata.topics:
                return True  # deleted meanwhile, its files with it
            self._metrics.failures.value += 1
            log.error("compaction of %s failed: %s", tp, e)
            return False
        return True

    async def _candidates(self) -> AsyncIterator[LogToClean]:
        """The state of all compacted logs, read in turns: they may be many, and opening one is
        slow.
        """
        now_ms, turn = self._broker.clock.now_ms(), Turn(own=True)
        for name in list(self._broker.compacted_topics()):
            topic = self._broker.metadata.topics.get(name)
            for index in range(len(topic.partitions) if topic is not None else 0):
                candidate = self._candidate(TopicPartition(name, index), now_ms)
                if candidate is not None:
                    yield candidate
                if turn.is_over:
                    await turn.next()

    def _candidate(self, tp: TopicPartition, now_ms: int) -> LogToClean | None:
        try:
            compacted = self._broker.logs.get(tp)
        except StorageError as e:
            log.error("%s cannot be compacted: %s", tp, e)
            return None
        if compacted is None or compacted.cleaning or compacted.dir in self._uncleanable:
            return None
        return cleanable(log_state(compacted, self._first_dirty.get(tp)), now_ms)

    async def _clean(self, cleaner: Cleaner, tp: TopicPartition, todo: LogToClean) -> None:
        compacted = self._broker.logs.get(tp)
        assert compacted is not None
        compacted.cleaning = True
        cuts = compacted.cuts
        try:
            job = await self._job(compacted, todo)
            result = await cleaner.clean(job)
            if not await self._take_in(compacted, job.directory, cuts, result):
                # The topic was deleted meanwhile, or the log no longer holds what was compacted.
                return
        finally:
            compacted.cleaning = False
        self._first_dirty[tp] = result.end_offset
        async with self._writing:
            await asyncio.to_thread(write_checkpoint, self._path, self._existing_offsets())
        self._metrics.runs.value += 1
        self._metrics.bytes_read.value += result.bytes_before
        self._metrics.bytes_written.value += result.bytes_after
        log.info(
            "compacted %s up to offset %d",
            tp,
            result.end_offset,
            extra={
                "messages": f"{result.messages_before}->{result.messages_after}",
                "bytes": f"{result.bytes_before}->{result.bytes_after}",
            },
        )

    async def _job(self, compacted: Log, todo: LogToClean) -> CleanJob:
        config = self._broker.config
        workers = max(config.log_cleaner_threads, 1)
        end, key_id = todo.first_uncleanable_offset, compacted.config.penstock_encryption_key_id
        directory, new = compacted.dir, []
        if key_id:
            count = sum(segment.base_offset < end for segment in todo.log.segments)
            new = await asyncio.to_thread(compacted.env.keys.make, key_id, count)
        return clean_job(
            todo,
            directory=directory,
            producers=producer_ends(compacted),
            now_ms=self._broker.clock.now_ms(),
            dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size // workers,
            io_max_bytes_per_second=config.log_cleaner_io_max_bytes_per_second / workers,
            keys=segment_keys(compacted, end, new),
        )

    async def _take_in(
        self, compacted: Log, directory: str, cuts: int, result: CleanResult
    ) -> bool:
        """Swap the result in; False when the log was cut or deleted meanwhile."""
        # Not left half done by a node that stops: `stop` waits for it.
        swaps = asyncio.create_task(self._swap_all(compacted, directory, cuts, result))
        self._swaps.add(swaps)
        swaps.add_done_callback(self._swaps.discard)
        return await asyncio.shield(swaps)

    async def _swap_all(
        self, compacted: Log, directory: str, cuts: int, result: CleanResult
    ) -> bool:
        done = 0
        try:
            await self._make_sure(compacted, result.end_offset)
            for group in result.groups:
                unchanged = compacted.dir == directory and compacted.cuts == cuts
                if not (unchanged and await self._swap_in(compacted, group)):
                    break
                done += 1
        finally:
            if done < len(result.groups):
                await asyncio.to_thread(remove_cleaned, compacted.dir)
        return done == len(result.groups)

    async def _make_sure(self, compacted: Log, end_offset: int) -> None:
        """Have the recovery point on disk beyond what was cleaned.

        Above it a gap between segments is a loss to recovery; compaction leaves gaps.
        """
        if compacted.recovery_point < end_offset:
            cuts, task = compacted.cuts, flush_begin(compacted)
            await asyncio.to_thread(task.run)
            if compacted.cuts == cuts or task.error is not None:
                flush_done(compacted, task)
        await asyncio.to_thread(self._broker.logs.checkpoint_task())

    async def _swap_in(self, compacted: Log, group: CleanedGroup) -> bool:
        """Swap a segment in; False when the log was truncated or deleted meanwhile."""
        swap = compacted.swap_begin(group.base_offset, group.replaces)
        await asyncio.to_thread(swap.prepare)
        if not swap.install():
            return False
        await asyncio.to_thread(swap.sync)
        swap.settle()
        await asyncio.to_thread(swap.sync)
        swap.end()
        return True

    def _stored_offsets(self) -> dict[TopicPartition, int]:
        try:
            return read_checkpoint(self._path)
        except StorageError as e:
            log.warning("compaction begins anew, as its checkpoint cannot be read: %s", e)
            return {}

    def _existing_offsets(self) -> dict[TopicPartition, int]:
        topics = self._broker.metadata.topics
        return {tp: offset for tp, offset in self._first_dirty.items() if tp.topic in topics}
