"""Runs replication on this node: fetchers for the followers, changes of the ISR for the leaders,
and periodic duties.

Replicas that the metadata wants here are opened a few at a time, and those of deleted topics leave
a few at a time, so that requests are served in between. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

from penstock.base.errors import StorageError
from penstock.net.turn import Turn
from penstock.partitions.alter_partition_manager import AlterPartitionManager, Call
from penstock.partitions.partition import Partition
from penstock.partitions.replica_fetcher import FetcherEnvironment, ReplicaFetcher
from penstock.partitions.replica_manager import ReplicaManager
from penstock.partitions.resigning import Resignations

log = logging.getLogger("penstock.partitions")


class Replication:
    def __init__(self, replicas: ReplicaManager, env: FetcherEnvironment, call: Call) -> None:
        """`call` sends a request to the active controller."""
        self._replicas = replicas
        self._env = env
        self.isr_changes = AlterPartitionManager(env.node_id, self._broker_epoch, call)
        self._resignations = Resignations(
            env.node_id, self._broker_epoch, call, replicas.registered
        )
        self._loop = asyncio.get_running_loop()
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._placed: dict[Partition, ReplicaFetcher] = {}
        self._stopping: list[asyncio.Task[None]] = []
        self._opening: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._duties: list[asyncio.Task[None]] = []
        self._writing: asyncio.Future[None] | None = None

    def _broker_epoch(self) -> int:
        epoch = self._env.brokers.broker_epoch(self._env.node_id)
        return -1 if epoch is None else epoch

    def start(self) -> None:
        """The metadata has caught up and this broker is registered: begin."""
        self._replicas.begin(self, self.isr_changes.submit)
        config = self._env.config
        self._every(lambda: config().replica_lag_time_max_ms / 2000, self._check_replicas)
        self._every(
            lambda: config().replica_high_watermark_checkpoint_interval_ms / 1000, self.checkpoint
        )

    async def stop(self) -> None:
        """Stop fetching; write the high watermarks."""
        under_way = (self._opening, self._leaving, self._checking)
        tasks = [*self._duties, *(task for task in under_way if task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._stopping, return_exceptions=True)
        while self._replicas.leave_next():
            pass
        await asyncio.gather(*(fetcher.stop() for fetcher in self._fetchers.values()))
        await self.isr_changes.stop()
        await self._resignations.stop()
        try:
            await self.checkpoint()
        except StorageError as e:
            log.error("high watermarks were not written: %s", e)

    # -- callbacks of the replica manager ------------------------------------------------------

    def on_leadership(self, partition: Partition) -> None:
        self.on_gone(partition)
        if partition.follower is not None:
            leader_id = partition.follower.leader_id
            fetcher = self._fetchers.get(leader_id)
            if fetcher is None:
                fetcher = self._fetchers[leader_id] = ReplicaFetcher(leader_id, self._env)
            self._placed[partition] = fetcher
            fetcher.add(partition)

    def on_gone(self, partition: Partition) -> None:
        fetcher = self._placed.pop(partition, None)
        if fetcher is None:
            return
        fetcher.remove(partition)
        if not len(fetcher) and not (
            partition.follower is not None and partition.follower.leader_id == fetcher.leader_id
        ):
            del self._fetchers[fetcher.leader_id]
            task = self._loop.create_task(fetcher.stop())
            self._stopping.append(task)
            task.add_done_callback(self._stopping.remove)

    def on_stopped(self, partition: Partition) -> None:
        self.on_gone(partition)
        self._resignations.begin(partition)

    def on_log_failed(self, partition: Partition) -> None:
        self._resignations.begin(partition)

    def on_to_open(self) -> None:
        if self._opening is None:
            self._opening = self._loop.create_task(self._open_all())

    def on_to_leave(self) -> None:
        if self._leaving is None:
            self._leaving = self._loop.create_task(self._leave_all())

    def on_checks(self, steps: Iterator[None]) -> None:
        # The new pass checks everything: the one before need not continue.
        if self._checking is not None:
            self._checking.cancel()
        self._checking = self._loop.create_task(self._run_steps(steps))

    async def _open_all(self) -> None:
        try:
            await _in_turns(self._replicas.open_next)
        finally:
            self._opening = None

    async def _leave_all(self) -> None:
        try:
            await _in_turns(self._replicas.leave_next)
        finally:
            self._leaving = None

    # -- duties --------------------------------------------------------------------------------

    def _every(self, interval_s: Callable[[], float], duty: Callable[[], Awaitable[None]]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(interval_s())
                try:
                    await duty()
                except StorageError as e:
                    log.error("a duty of replication failed and will be tried again: %s", e)
                except Exception:
                    log.exception("a duty of replication failed and will be tried again")

        self._duties.append(self._loop.create_task(repeat()))

    async def _check_replicas(self) -> None:
        await self._run_steps(self._replicas.check_replicas())

    async def _run_steps(self, steps: Iterator[None]) -> None:
        for _ in steps:
            await asyncio.sleep(0)

    async def checkpoint(self) -> None:
        """Write the high watermarks; one write at a time, also when its duty was cancelled."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        self._writing = self._loop.run_in_executor(None, self._replicas.checkpoint_task())
        await asyncio.shield(self._writing)

    @property
    def max_lag(self) -> int:
        """Messages that the follower furthest behind has still to fetch."""
        return max((p.follower.lag or 0 for p in self._placed if p.follower is not None), default=0)


async def _in_turns(step: Callable[[], bool]) -> None:
    """Take one step after the other while there are more, with turns for others in between."""
    turn = Turn(own=True)
    while step():
        if turn.is_over:
            await turn.next()
