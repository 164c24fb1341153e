"""The share coordinator of this node: a shard for each partition of `__share_group_state` it leads.

Duty, beyond what all coordinators share (`coordinators`): divide a request, which names
share-partitions of one group, among the shards that keep them, and put the answers together; move
the start of each log to where its oldest newest snapshot stands, and have cold share-partitions
snapshotted, as long as the cluster has share groups at all. Requests of this node come as they are,
those of others through their codec.

Limits: `KEYS_REMEMBERED_MAX`. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from penstock.base.errors import ErrorCode, PenstockError
from penstock.base.ids import TopicPartition, Uuid
from penstock.coordinating.coordinators import (
    CoordinatorEnvironment,
    InternalTopic,
    ShardedCoordinator,
    java_hash,
)
from penstock.coordinating.shard_driver import ShardKind
from penstock.coordinator.effects import Effects
from penstock.coordinator.share_state import (
    PruneTo,
    ShareStateConfig,
    ShareStateShard,
    refuse,
)
from penstock.coordinator.share_state.answers import answer, nothing, request_of
from penstock.coordinator.share_state.config import Environment, WriteCounts
from penstock.metadata.features import SHARE_VERSION
from penstock.metadata.names import SHARE_STATE_TOPIC
from penstock.observe.metrics import Histogram
from penstock.share.types import ShareKey
from penstock.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest
from penstock.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from penstock.wire.messages.write_share_group_state import WriteShareGroupStateRequest

if TYPE_CHECKING:
    from penstock.config.broker_config import BrokerConfig
    from penstock.metadata.delta import MetadataDelta
    from penstock.wire.schema import Message

log = logging.getLogger("penstock.coordinating")

KEYS_REMEMBERED_MAX: Final = 50_000
"""Share-partitions of which the hash is kept; to work it out takes as long as to encode a write."""

SHARE_STATE_SHARDS: Final = ShardKind(
    "share coordinator",
    refuse,
    (
        InitializeShareGroupStateRequest,
        WriteShareGroupStateRequest,
        DeleteShareGroupStateRequest,
    ),
    ShareStateShard.placed,
)


class ShareCoordinator(ShardedCoordinator[ShareStateShard]):
    def __init__(self, env: CoordinatorEnvironment) -> None:
        config = env.config
        super().__init__(
            env,
            SHARE_STATE_SHARDS,
            share_state_topic(config),
            commit_timeout_s=config.share_coordinator_write_timeout_ms / 1000,
            expiry_interval_s=(config.share_coordinator_cold_partition_snapshot_interval_ms / 1000),
        )
        self.counts = WriteCounts()
        self.write_seconds = Histogram()
        self.pruned: dict[int, int] = {}
        """Where the logs of this node's shards begin since they were pruned last."""
        self._prune_interval_s = config.share_coordinator_state_topic_prune_interval_ms / 1000
        self._pruning: asyncio.Task[None] | None = None
        self._environment = Environment(
            ShareStateConfig(
                config.share_coordinator_snapshot_update_records_per_snapshot,
                config.share_coordinator_cold_partition_snapshot_interval_ms,
            ),
            self._partitions_of,
            self.counts,
        )

    def _make_shard(self, index: int, leader_epoch: int) -> ShareStateShard:
        return ShareStateShard(self._environment)

    def _partitions_of(self, topic_id: Uuid) -> int:
        topic = self._metadata.topics_by_id.get(topic_id)
        return 0 if topic is None else len(topic.partitions)

    @property
    def _enabled(self) -> bool:
        return self._metadata.features.get(SHARE_VERSION, 0) > 0

    # -- where a share-partition is kept -------------------------------------------------------

    @property
    def has_topic(self) -> bool:
        return self._topic_name in self._metadata.topics

    def index_of(self, key: ShareKey) -> int | None:
        """The partition that keeps it; None while there is none."""
        topic = self._metadata.topics.get(self._topic_name)
        return None if topic is None else _key_hash(key) % len(topic.partitions)

    def node_of(self, key: ShareKey) -> int | None:
        """The node that keeps it, as far as the metadata knows."""
        index = self.index_of(key)
        if index is None:
            return None
        leader = self._metadata.topics[self._topic_name].partitions[index].leader
        return leader if leader >= 0 else None

    # -- requests ------------------------------------------------------------------------------

    def serve(self, request: Any, version: int) -> Message | Awaitable[Message]:
        """The answer to one of the five requests about states, or a future of it."""
        answer = self._serve(request, version)
        if isinstance(request, WriteShareGroupStateRequest) and inspect.isawaitable(answer):
            return self._timed(answer)
        return answer

    async def _timed(self, answer: Awaitable[Message]) -> Message:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        given = await answer
        self.write_seconds.observe(loop.time() - begun_s)
        return given

    def _serve(self, request: Any, version: int) -> Message | Awaitable[Message]:
        empty = any(not topic.partitions for topic in request.topics)
        if not request.group_id or not request.topics or empty:
            return nothing(request)
        parts = self._divided(request)
        if parts is None:
            return refuse(request, version, ErrorCode.NOT_COORDINATOR)
        if len(parts) == 1:
            ((index, _),) = parts.items()
            return self._submit_at(index, request, version)
        kind, group_id = type(request), request.group_id
        answers = [
            self._submit_at(index, request_of(kind, group_id, topics), version)
            for index, topics in parts.items()
        ]
        return _together(request, answers)

    def _divided(self, request: Any) -> dict[int, dict[Uuid, list[Any]]] | None:
        """What each shard is asked, by topic; None while there is no shard at all."""
        parts: dict[int, dict[Uuid, list[Any]]] = {}
        for topic in request.topics:
            for named in topic.partitions:
                index = self.index_of(ShareKey(request.group_id, topic.topic_id, named.partition))
                if index is None:
                    return None
                parts.setdefault(index, {}).setdefault(topic.topic_id, []).append(named)
        return parts

    def _submit_at(
        self, index: int, request: Message, version: int
    ) -> Message | Awaitable[Message]:
        driver = self._driver_at(index)
        if driver is None:
            return refuse(request, version, ErrorCode.NOT_COORDINATOR)
        return driver.submit(request, version, "", "")

    # -- duties --------------------------------------------------------------------------------

    def lead(self, delta: MetadataDelta) -> None:
        super().lead(delta)
        gone = delta.deleted_topics.keys()
        if gone:
            for driver in list(self._drivers.values()):
                driver.event(lambda shard, _now_ms: shard.forget_topics(gone))

    def start(self, stored: set[TopicPartition]) -> None:
        super().start(stored)
        self._pruning = asyncio.create_task(self._prune_regularly())

    def _expire(self, shard: ShareStateShard, now_ms: int) -> Effects:
        return shard.snapshot_cold(now_ms) if self._enabled else Effects()

    async def _prune_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._prune_interval_s)
            if self._enabled:
                self.prune()

    def prune(self) -> None:
        """Have every shard say how far its log is needed, and cut it there."""
        for driver in list(self._drivers.values()):
            driver.event(lambda shard, now_ms: shard.prune(now_ms))

    def _action(self, index: int, action: PruneTo) -> None:
        try:
            partition = self._env.replicas.leader_of(self._topic_name, index)
            if partition.log.log_start_offset < action.offset <= partition.high_watermark:
                partition.delete_records(action.offset)
        except PenstockError as e:
            log.warning("%s-%d could not be pruned: %s", self._topic_name, index, e)
        else:
            self.pruned[index] = action.offset

    def _given_up(self, index: int) -> None:
        self.pruned.pop(index, None)

    def states(self) -> int:
        """How many share-partitions the loaded shards keep, for metrics."""
        return sum(len(shard.states) for shard in self._active_shards())

    async def stop(self) -> None:
        await super().stop()
        if self._pruning is not None:
            self._pruning.cancel()
            await asyncio.gather(self._pruning, return_exceptions=True)


@lru_cache(maxsize=KEYS_REMEMBERED_MAX)
def _key_hash(key: ShareKey) -> int:
    return java_hash(key.text)


async def _together(request: Any, answers: list[Message | Awaitable[Message]]) -> Message:
    """One answer, in the order of the request; all parts are waited for at the same time."""
    found: dict[tuple[Uuid, int], Any] = {}
    for part in answers:
        given: Any = await part if inspect.isawaitable(part) else part
        for topic in given.results:
            for result in topic.partitions:
                found[topic.topic_id, result.partition] = result
    return answer(request, lambda topic_id, named: found[topic_id, named.partition])


def share_state_topic(config: BrokerConfig) -> InternalTopic:
    return InternalTopic(
        SHARE_STATE_TOPIC,
        config.share_coordinator_state_topic_num_partitions,
        config.share_coordinator_state_topic_replication_factor,
        {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
            # Only pruning knows what is not needed any more.
            "retention.bytes": "-1",
            "retention.ms": "-1",
            "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )
