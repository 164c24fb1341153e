"""The group coordinator of this node: a shard for each partition of `__consumer_offsets` it leads.

Duty, beyond what all coordinators share (`coordinators`): notify shards of changed topics, prepare
commits with very many offsets in turns, end transactions in them, ask the share coordinator on
behalf of share groups (`share`), and show what the node knows of its groups. Owned by the event
loop's thread.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.base.errors import ApiError, ErrorCode
from penstock.config.group_config import (
    ShareGroupConfig,
    StreamsGroupConfig,
    share_group_config,
    streams_group_config,
)
from penstock.coordinating.coordinators import (
    CoordinatorEnvironment,
    InternalTopic,
    ShardedCoordinator,
)
from penstock.coordinating.shard_driver import ShardKind
from penstock.coordinating.share_groups import ShareGroups
from penstock.coordinator.commits import Commit, CommitRequest
from penstock.coordinator.config import GroupConfig
from penstock.coordinator.consumer.regex import TopicPattern, pattern_of
from penstock.coordinator.consumer.subscriptions import matchable
from penstock.coordinator.effects import EndTxnMarker, ProducerIdentity
from penstock.coordinator.group import Group, RebalanceCounts
from penstock.coordinator.offsets import GroupOffset
from penstock.coordinator.refusals import refuse
from penstock.coordinator.shard import GroupShard
from penstock.coordinator.share_group import ShareGroup
from penstock.coordinator.streams_group import StreamsGroup
from penstock.coordinator.topics import ImageTopics
from penstock.metadata.image import ResourceType
from penstock.metadata.names import OFFSETS_TOPIC
from penstock.net.turn import in_turns
from penstock.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest
from penstock.wire.messages.offset_commit import OffsetCommitRequest
from penstock.wire.messages.offset_delete import OffsetDeleteRequest
from penstock.wire.messages.sync_group import SyncGroupRequest
from penstock.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

if TYPE_CHECKING:
    from penstock.config.broker_config import BrokerConfig
    from penstock.coordinating.end_offsets import EndOffsets
    from penstock.coordinating.share_persister import SharePersister
    from penstock.coordinator.effects import Effects
    from penstock.coordinator.streams_group.resolving import ResolvedTopic
    from penstock.metadata.delta import MetadataDelta
    from penstock.wire.schema import Message

OFFSETS_AT_ONCE_MAX: Final = 100
"""A commit of more is made ready in turns."""
MATCHED_AT_ONCE_MAX: Final = 200
"""With more topics a regular expression is matched in turns."""
GROUP_SHARDS: Final = ShardKind(
    "group coordinator",
    refuse,
    (
        OffsetCommitRequest,
        TxnOffsetCommitRequest,
        OffsetDeleteRequest,
        JoinGroupRequest,
        SyncGroupRequest,
        LeaveGroupRequest,
        DeleteGroupsRequest,
        AlterShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsRequest,
    ),
)


class GroupCoordinator(ShardedCoordinator[GroupShard]):
    def __init__(
        self, env: CoordinatorEnvironment, persister: SharePersister, ends: EndOffsets
    ) -> None:
        config = env.config
        super().__init__(
            env,
            GROUP_SHARDS,
            offsets_topic(config),
            commit_timeout_s=config.offsets_commit_timeout_ms / 1000,
            expiry_interval_s=config.offsets_retention_check_interval_ms / 1000,
        )
        self._config = config
        self._group_config = group_config(config)
        self._topics = ImageTopics(env.metadata)
        self.rebalances = RebalanceCounts()
        self.share = ShareGroups(self._driver_of, self._topics, persister, ends)

    def _make_shard(self, index: int, leader_epoch: int) -> GroupShard:
        return GroupShard(
            self._group_config,
            self._topics,
            self._env.rng,
            self._overrides,
            self.rebalances,
            self.share_config,
            self.streams_config,
        )

    def _action(self, index: int, action: Any) -> None:
        self.share.begin(action)

    async def stop(self) -> None:
        await self.share.stop()
        await super().stop()

    def settings_changed(self, config: BrokerConfig) -> None:
        self._config = config
        self._group_config = group_config(config)
        for driver in self._drivers.values():
            driver.shard.environment.config = self._group_config

    def _overrides(self, group_id: str) -> Mapping[str, str]:
        return self._metadata.config(ResourceType.GROUP, group_id)

    def share_config(self, group_id: str) -> ShareGroupConfig:
        """What is in force for a share group."""
        return share_group_config(self._overrides(group_id), self._config)

    def streams_config(self, group_id: str) -> StreamsGroupConfig:
        """What is in force for a streams group."""
        return streams_group_config(self._overrides(group_id), self._config)

    def _expire(self, shard: GroupShard, now_ms: int) -> Effects:
        return shard.expire(now_ms)

    # -- what is large -------------------------------------------------------------------------

    def submit(
        self,
        key: str,
        request: Message,
        version: int,
        client_id: str,
        client_host: str,
        sees: Callable[[str], bool] | None = None,
    ) -> Message | Awaitable[Message]:
        """`sees` says of which topics the client may know, by name; None: of all."""
        if isinstance(request, OffsetCommitRequest) and request.has_more_than(OFFSETS_AT_ONCE_MAX):
            return self._submit_in_turns(key, request, version, client_id, client_host)
        if (
            isinstance(request, ConsumerGroupHeartbeatRequest)
            and request.subscribed_topic_regex
            and len(self._metadata.topics) > MATCHED_AT_ONCE_MAX
        ):
            return self._match_then_submit(key, request, version, client_id, client_host, sees)
        if isinstance(request, DeleteGroupsRequest) and self._has_share_group(key):
            return self._delete_share_group(key, request, version, client_id, client_host)
        return self._submit(key, request, version, client_id, client_host, sees)

    def _submit(
        self,
        key: str,
        request: Message,
        version: int,
        client_id: str,
        client_host: str,
        sees: Callable[[str], bool] | None,
    ) -> Message | Awaitable[Message]:
        if sees is None:
            return super().submit(key, request, version, client_id, client_host)
        driver = self._driver_of(key)
        if driver is None:
            return refuse(request, version, ErrorCode.NOT_COORDINATOR)
        return driver.submit(
            request,
            version,
            client_id,
            client_host,
            handle=lambda shard, caller, now_ms: shard.handle(
                request, caller._replace(sees=sees), now_ms
            ),
        )

    async def _match_then_submit(
        self,
        key: str,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        client_id: str,
        client_host: str,
        sees: Callable[[str], bool] | None,
    ) -> Message:
        """Match a regular expression with very many topics before the group asks for it."""
        pattern = self._pattern(key, request.subscribed_topic_regex or "")
        if pattern is not None:
            await in_turns(pattern.learn(matchable(self._topics)))
        answer = self._submit(key, request, version, client_id, client_host, sees)
        return await answer if inspect.isawaitable(answer) else answer

    def _pattern(self, key: str, regex: str) -> TopicPattern | None:
        """The one that the group will use; None if it will refuse it."""
        driver = self._driver_of(key)
        if driver is None:
            return None
        try:
            return pattern_of(regex, driver.shard.environment.patterns)
        except ApiError:
            return None

    async def _submit_in_turns(
        self, key: str, request: OffsetCommitRequest, version: int, client_id: str, client_host: str
    ) -> Message:
        """Make very many offsets ready before the shard stores them, all at once."""
        commit = await self.prepared(request, version)
        driver = self._driver_of(key)
        if driver is None:
            return refuse(request, version, ErrorCode.NOT_COORDINATOR)
        answer = driver.submit(
            request,
            version,
            client_id,
            client_host,
            handle=lambda shard, caller, now_ms: shard.commit(commit, caller, now_ms),
        )
        return await answer if inspect.isawaitable(answer) else answer

    async def prepared(self, request: CommitRequest, version: int) -> Commit:
        """The commit, as far as the group need not be asked."""
        commit, limit = Commit(request, version), self._group_config.offset_metadata_max_bytes
        await in_turns(commit.prepare(self._topics, limit, self._env.clock.now_ms()))
        return commit

    # -- share groups --------------------------------------------------------------------------

    def _has_share_group(self, group_id: str) -> bool:
        driver = self._driver_of(group_id)
        return driver is not None and isinstance(driver.shard.groups.get(group_id), ShareGroup)

    async def _delete_share_group(
        self,
        group_id: str,
        request: DeleteGroupsRequest,
        version: int,
        client_id: str,
        client_host: str,
    ) -> Message:
        """Delete its states first: nobody would look for them afterwards."""
        refused = await self.share.forget(group_id, request, version)
        if refused is not None:
            return refused
        answer = self._submit(group_id, request, version, client_id, client_host, None)
        return await answer if inspect.isawaitable(answer) else answer

    # -- streams groups ------------------------------------------------------------------------

    def missing_topics(self, group_id: str) -> list[ResolvedTopic]:
        """The internal topics that a streams group of this node waits for."""
        driver = self._driver_of(group_id)
        group = None if driver is None else driver.shard.groups.get(group_id)
        return list(group.missing_topics) if isinstance(group, StreamsGroup) else []

    # -- transactions --------------------------------------------------------------------------

    def submit_transactional(
        self,
        request: TxnOffsetCommitRequest,
        commit: Commit,
        version: int,
        client_id: str,
        client_host: str,
    ) -> Message | Awaitable[Message]:
        """Pass offsets that are part of a transaction to the group's shard; the caller has verified
        that the transaction is open (`transactional_commits`).
        """
        driver = self._driver_of(request.group_id)
        if driver is None:
            return refuse(request, version, ErrorCode.NOT_COORDINATOR)
        producer = ProducerIdentity(request.producer_id, request.producer_epoch)
        return driver.submit(
            request,
            version,
            client_id,
            client_host,
            producer,
            lambda shard, caller, now_ms: shard.commit(commit, caller, now_ms),
        )

    def end_transaction(self, index: int, marker: EndTxnMarker) -> Awaitable[ErrorCode]:
        """Write the marker of a transaction to a partition of the offsets topic and apply it to its
        groups; done when it is committed.
        """
        driver = self._driver_at(index)
        if driver is not None:
            return driver.end_transaction(marker)
        nowhere: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        nowhere.set_result(ErrorCode.NOT_COORDINATOR)
        return nowhere

    # -- following the metadata ----------------------------------------------------------------

    def apply(self, delta: MetadataDelta) -> None:
        """`delta` was applied to the image; before the partitions follow it."""
        super().apply(delta)
        by_id = self._metadata.topics_by_id
        deleted = frozenset(topic.name for topic in delta.deleted_topics.values())
        changed = deleted.union(
            (topic.name for topic in delta.created_topics.values()),
            (
                by_id[id_].name
                for id_ in {id_ for id_, _ in delta.changed_partitions}
                if id_ in by_id
            ),
        )
        for driver in self._drivers.values() if changed else ():
            if deleted:
                driver.event(lambda shard, _: shard.topics_deleted(deleted))
            driver.event(lambda shard, now_ms: shard.topics_changed(changed, now_ms))

    # -- what the node knows -------------------------------------------------------------------

    def loaded_groups(self) -> Iterator[Group]:
        """Every group of a loaded shard; groups may come and go meanwhile."""
        for shard in self._active_shards():
            yield from list(shard.groups.values())

    def committed_offsets(self) -> Iterator[GroupOffset]:
        """The committed offsets of all loaded groups, for lag; groups may change meanwhile."""
        for shard in self._active_shards():
            for group_id in shard.offsets.group_ids():
                yield from shard.offsets.of_group(group_id)


def offsets_topic(config: BrokerConfig) -> InternalTopic:
    return InternalTopic(
        OFFSETS_TOPIC,
        config.offsets_topic_num_partitions,
        config.offsets_topic_replication_factor,
        {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )


def group_config(config: BrokerConfig) -> GroupConfig:
    """What the coordinator reads of the node's settings; the names are the same."""
    return GroupConfig(
        **{field.name: getattr(config, field.name) for field in dataclasses.fields(GroupConfig)}
    )
