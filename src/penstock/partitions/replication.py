"""Makes replication happen on this node: fetchers for what follows, the controller's ear for what
leads, and the duties that time brings.

Replicas that the metadata wants here are opened a few at a time, and those of deleted topics leave
a few at a time, so that requests go on in between. Owned by the event loop's thread.
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
        self._looking: asyncio.Task[None] | None = None
        self._duties: list[asyncio.Task[None]] = []
        self._writing: asyncio.Future[None] | None = None

    def _broker_epoch(self) -> int:
        epoch = self._env.brokers.broker_epoch(self._env.node_id)
        return -1 if epoch is None else epoch

    def start(self) -> None:
        """The metadata has caught up and this broker is registered: begin."""
        self._replicas.begin(self, self.isr_changes.submit)
        config = self._env.config
        self._every(lambda: config().replica_lag_time_max_ms / 2000, self._look_around)
        self._every(
            lambda: config().replica_high_watermark_checkpoint_interval_ms / 1000, self.checkpoint
        )

    async def stop(self) -> None:
        """Fetch no more; the high watermarks are written down."""
        under_way = (self._opening, self._leaving, self._looking)
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
            log.error("high watermarks were not written down: %s", e)

    # -- what the replicas tell ----------------------------------------------------------------

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

    def on_to_open(self) -> None:
        if self._opening is None:
            self._opening = self._loop.create_task(self._open_all())

    def on_to_leave(self) -> None:
        if self._leaving is None:
            self._leaving = self._loop.create_task(self._leave_all())

    def on_looking(self, steps: Iterator[None]) -> None:
        # Who comes after looks at everything again: the one before need not go on.
        if self._looking is not None:
            self._looking.cancel()
        self._looking = self._loop.create_task(self._look(steps))

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

    async def _look_around(self) -> None:
        await self._look(self._replicas.look_around())

    async def _look(self, steps: Iterator[None]) -> None:
        for _ in steps:
            await asyncio.sleep(0)

    async def checkpoint(self) -> None:
        """Write the high watermarks down; one write at a time, also when its duty was cancelled."""
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
