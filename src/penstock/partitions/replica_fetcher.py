"""Copies partitions from one leader: this node's followers of one other broker.

One task, one connection, one incremental fetch session. A round asks for what comes after the ends
of the logs, naming only partitions that have moved since the last round; the leader holds the
request until there is something. What arrives is appended and acknowledged by the next round, which
is what commits it; logs that must be flushed first (`flush.messages`) are.

A partition with an error is taken out of the session for a while. When a partition is added while
the leader holds a request, a second request behind it (a nudge) makes it answer.

Limits: `replica.fetch.max.bytes` of one partition and `replica.fetch.response.max.bytes` in one
answer; after `TURN_BYTES_MAX` others get their turn of the event loop, which owns all of this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from penstock.base.errors import (
    CorruptRecord,
    ErrorCode,
    InvariantBroken,
    StorageError,
)
from penstock.base.ids import Uuid
from penstock.config.broker_config import BrokerConfig
from penstock.observe.logs import Alarm
from penstock.partitions.follower_session import FollowerSession
from penstock.partitions.leader_offsets import ask_offsets
from penstock.partitions.metadata_brokers import MetadataBrokers
from penstock.partitions.partition import Partition
from penstock.partitions.replication_quota import ReplicationQuota
from penstock.partitions.waiting import ACKS_LEADER
from penstock.peers.connection import PeerConnection
from penstock.peers.errors import PeerError
from penstock.peers.peers import Channel, Peers
from penstock.replica.follower import (
    Append,
    AskOffsets,
    AwaitMetadata,
    BackOff,
    Follower,
    StartAnew,
    Step,
    Truncate,
)
from penstock.wire.apis import ApiKey
from penstock.wire.errors import WireError
from penstock.wire.replica_fetch_codec import FetchAnswer, FetchedPartition, decode_fetch_response

log = logging.getLogger("penstock.partitions")

TURN_BYTES_MAX = 512 * 1024
CONNECT_PAUSE_S = 0.02
STORAGE_PAUSE_S = 1.0
"""How long a partition is not fetched after an error of its log or of the leader's."""
CHECKPOINT_PAUSE_S = 0.02
"""How long a partition is not fetched while its recovery point is being written."""
NUDGE_VERSION = 0

Key: TypeAlias = tuple[Uuid, int]


@dataclass(frozen=True, slots=True)
class FetcherEnvironment:
    """What all fetchers of a node share."""

    node_id: int
    peers: Peers
    brokers: MetadataBrokers
    quota: ReplicationQuota
    config: Callable[[], BrokerConfig]


class _Followed(NamedTuple):
    partition: Partition
    follower: Follower


class ReplicaFetcher:
    def __init__(self, leader_id: int, env: FetcherEnvironment) -> None:
        self.leader_id = leader_id
        self._env = env
        self._loop = asyncio.get_running_loop()
        self._followed: dict[Key, _Followed] = {}
        self._paused: dict[Key, asyncio.TimerHandle | None] = {}
        self._session = FollowerSession(env.node_id)
        self._connection: PeerConnection | None = None
        self._waits = False
        self._failures = 0
        self._something = asyncio.Event()
        self._alarm = Alarm(log)
        self._task = self._loop.create_task(self._run())

    # -- what is followed ----------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, partition: Partition) -> None:
        """Follow the leader for `partition`, under its present leader epoch."""
        follower = partition.follower
        assert follower is not None
        key = (partition.topic_id, partition.index)
        self._unpause(key)
        self._followed[key] = _Followed(partition, follower)
        self._go_on(key)

    def remove(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        self._unpause(key)
        if self._followed.pop(key, None) is not None:
            self._session.leave(key)

    async def stop(self) -> None:
        for key in list(self._paused):
            self._unpause(key)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _go_on(self, key: Key) -> None:
        """Fetch the partition from its log's end; end a request that the leader holds."""
        self._paused.pop(key, None)
        self._session.name(key)
        self._something.set()
        connection = self._connection
        if self._waits and connection is not None:
            self._waits = False
            nudge = connection.send_raw(ApiKey.API_VERSIONS, NUDGE_VERSION, b"")
            nudge.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _pause(self, key: Key, pause_s: float | None) -> None:
        """Do not fetch the partition; if `pause_s` is None, until the metadata changes."""
        self._unpause(key)
        self._session.leave(key)
        timer = None if pause_s is None else self._loop.call_later(pause_s, self._go_on, key)
        self._paused[key] = timer

    def _unpause(self, key: Key) -> None:
        timer = self._paused.pop(key, None)
        if timer is not None:
            timer.cancel()

    # -- rounds --------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            if not self._session.wanted:
                self._something.clear()
                await self._something.wait()
            try:
                await self._round()
                self._failures = 0
            except (PeerError, WireError) as e:
                self._session.reset(self._active())
                if not self._failures:
                    log.warning("cannot fetch from broker %d: %s", self.leader_id, e)
                self._failures += 1
                await asyncio.sleep(self._connect_pause_s())
            except Exception:
                log.exception("fetching from broker %d failed and begins anew", self.leader_id)
                self._session.reset(self._active())
                await asyncio.sleep(self._env.config().replica_fetch_backoff_ms / 1000)

    def _connect_pause_s(self) -> float:
        most = self._env.config().replica_fetch_backoff_ms / 1000
        return min(CONNECT_PAUSE_S * (1 << min(self._failures, 8)), most)

    def _active(self) -> list[Key]:
        return [key for key in self._followed if key not in self._paused]

    async def _round(self) -> None:
        env = self._env
        address = env.brokers.address(self.leader_id)
        if address is None:
            raise PeerError(f"broker {self.leader_id} is not registered")
        connection = await env.peers.connection(address, Channel.REPLICA)
        if connection is not self._connection:
            self._connection = connection
            self._session.reset(self._active())
        self._throttle()
        while unflushed := self._unflushed():
            await _Durability(unflushed).done
        self._pause_truncated()
        if not self._session.wanted:
            return
        config = env.config()
        version = connection.common_version(ApiKey.FETCH)
        epoch = env.brokers.broker_epoch(env.node_id)
        body = self._session.request(
            version,
            -1 if epoch is None else epoch,
            config,
            lambda key: self._followed[key].partition,
        )
        answer = connection.send_raw(
            ApiKey.FETCH, version, body, config.replica_socket_timeout_ms / 1000
        )
        self._waits = True
        try:
            frame = await answer
        finally:
            self._waits = False
        await self._take(connection, decode_fetch_response(frame, 0, version))

    def _throttle(self) -> None:
        """Pause throttled partitions while their rate is exceeded."""
        quota = self._env.quota
        wait_s = quota.wait_s()
        if wait_s <= 0:
            return
        for key in self._session.to_name():
            followed = self._followed[key]
            if not followed.follower.in_sync and quota.covers(followed.partition):
                self._pause(key, wait_s)

    def _unflushed(self) -> list[Partition]:
        """The partitions that must be flushed before the next request acknowledges them; those that
        cannot be flushed are paused.
        """
        found = []
        for key in self._session.to_name():
            partition = self._followed[key].partition
            if partition.flush_wanted and partition.durable_offset < partition.log.log_end_offset:
                if partition.log.health.for_good:
                    self._pause(key, STORAGE_PAUSE_S)
                else:
                    found.append(partition)
        return found

    def _pause_truncated(self) -> None:
        """Pause the partitions whose logs may not grow before a checkpoint is written."""
        for key in self._session.to_name():
            log_ = self._followed[key].partition.log
            if log_.grows_after and log_.waits_for_checkpoint:
                self._pause(key, CHECKPOINT_PAUSE_S)

    # -- answers -------------------------------------------------------------------------------

    async def _take(self, connection: PeerConnection, answer: FetchAnswer) -> None:
        if not self._session.answered(answer.error_code, answer.session_id):
            self._session.reset(self._active())
            return
        out_of_range: list[Key] = []
        turn_bytes = 0
        for topic_id, partitions in answer.topics:
            for data in partitions:
                key = (topic_id, data.partition)
                step = self._take_partition(key, data)
                if isinstance(step, AskOffsets):
                    out_of_range.append(key)
                elif isinstance(step, Append) and data.records:
                    turn_bytes += len(data.records)
                    if turn_bytes > TURN_BYTES_MAX:
                        turn_bytes = 0
                        await asyncio.sleep(0)
        if out_of_range:
            await self._find_range(connection, out_of_range)

    def _take_partition(self, key: Key, data: FetchedPartition) -> Step | None:
        """What to do with the answer; None when it belongs to an outdated request."""
        followed = self._followed.get(key)
        if followed is None or key in self._paused:
            return None
        partition, follower = followed
        if partition.follower is not follower:
            return None
        if not self._session.asked(key, partition):
            self._session.name(key)  # its log has moved since, and not by an answer
            return None
        step = follower.on_answer(data, partition.log, partition.high_watermark)
        return self._do(key, followed, step, data.records)

    def _do(
        self, key: Key, followed: _Followed, step: Step, records: memoryview | None = None
    ) -> Step:
        """Carry a step out; if the disk refuses, pause the partition."""
        partition, follower = followed
        try:
            self._carry_out(key, followed, step, records)
        except CorruptRecord as e:
            self._alarm.raised(f"{key}", f"what was sent of {partition!r} is damaged: {e}")
            step = follower.failed(ErrorCode.CORRUPT_MESSAGE)
            self._pause(key, STORAGE_PAUSE_S)
        except StorageError as e:
            self._alarm.raised(f"{key}", f"{partition!r} cannot take what its leader sent: {e}")
            step = follower.failed(ErrorCode.KAFKA_STORAGE_ERROR)
            self._pause(key, STORAGE_PAUSE_S)
        except InvariantBroken as e:
            partition.stop(str(e))
            step = AwaitMetadata()
        return step

    def _carry_out(
        self, key: Key, followed: _Followed, step: Step, records: memoryview | None
    ) -> None:
        partition = followed.partition
        if isinstance(step, Append):
            self._append(key, followed, step, records)
        elif isinstance(step, Truncate):
            how = log.error if step.loses_committed else log.info
            how(
                "%r is truncated to offset %d, where the leader's log diverges",
                partition,
                step.offset,
            )
            partition.truncate_to(step.offset)
            self._session.name(key)
        elif isinstance(step, StartAnew):
            log.warning("%r begins anew at offset %d", partition, step.offset)
            partition.start_anew(step.offset)
            self._session.name(key)
        elif isinstance(step, BackOff):
            self._pause(key, step.pause_ms / 1000)
        elif isinstance(step, AwaitMetadata):
            self._pause(key, None)

    def _append(
        self, key: Key, followed: _Followed, step: Append, records: memoryview | None
    ) -> None:
        partition, follower = followed
        log_ = partition.log
        start = log_.log_start_offset
        partition.replicate(records, step)
        follower.appended(log_.log_end_offset, step.high_watermark)
        if records:
            size = len(records)
            partition.counters.replication_bytes_in += size
            self._env.quota.record(partition, size)
        if records or log_.log_start_offset != start:
            self._session.name(key)

    async def _find_range(self, connection: PeerConnection, keys: list[Key]) -> None:
        """Ask where the leader's logs begin and end, since ours lie outside."""
        followed = {key: self._followed[key] for key in keys if key in self._followed}
        found = await ask_offsets(
            connection,
            self._env.node_id,
            [(of.partition, of.follower.leader_epoch) for of in followed.values()],
        )
        for key, of in followed.items():
            if self._followed.get(key) is not of or key in self._paused:
                continue
            start, end, code = found[key]
            if code:
                step: Step = of.follower.failed(code)
            else:
                step = of.follower.on_offsets(
                    start, end, of.partition.log, of.partition.high_watermark
                )
            self._do(key, of, step)


class _Durability:
    """Waits until what was appended is on disk."""

    outlives_leadership = False

    def __init__(self, partitions: list[Partition]) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = len(partitions)
        for partition in partitions:
            partition.wait_for(partition.log.log_end_offset, ACKS_LEADER, self)

    def waits(self) -> None:
        """It does so from the start."""

    def appended(self) -> None:
        self._left -= 1
        if not self._left and not self.done.done():
            self.done.set_result(None)

    def failed(self, code: ErrorCode, message: str) -> None:
        self.appended()
