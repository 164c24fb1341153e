"""The group coordinator of this node: a shard for each partition of `__consumer_offsets` it leads.

Duty: from a group's id to its partition (Kafka's hash) and from there to the driver of its shard;
to create the topic on first need; to load a shard when this node begins to lead its partition and
to give it up when it does not lead it any more; to tell shards of changed topics; to have offsets
expire. Shards whose partition has no files yet have nothing to load and are made when a group needs
them.

A shard belongs to one leader epoch: what it holds in memory rests on what that leader wrote, so a
new epoch, even of the same node, begins with a replay. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final

from penstock.base.errors import ApiError, ErrorCode, invariant
from penstock.base.ids import TopicPartition
from penstock.broker.group_shard_driver import GroupShardDriver, ShardState
from penstock.coordinator.config import GroupConfig
from penstock.coordinator.offsets import GroupOffset
from penstock.coordinator.refusals import refuse
from penstock.coordinator.shard import GroupShard
from penstock.coordinator.topics import ImageTopics
from penstock.metadata.names import OFFSETS_TOPIC
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig

if TYPE_CHECKING:
    from penstock.base.clock import Clock, Rng
    from penstock.broker.partition import Partition
    from penstock.broker.replica_manager import ReplicaManager
    from penstock.config.broker_config import BrokerConfig
    from penstock.metadata.delta import MetadataDelta
    from penstock.metadata.image import MetadataImage
    from penstock.metadata.image import Partition as RegisteredPartition
    from penstock.wire.schema import Message

log = logging.getLogger("penstock.broker")

_HASH_MASK: Final = 0xFFFF_FFFF
CREATION_WAIT_S: Final = 0.25
"""How long a client that asks for a coordinator waits for the offsets topic to be created."""


class GroupCoordinator:
    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataImage,
        replicas: ReplicaManager,
        clock: Clock,
        rng: Rng,
        *,
        create_topic: Callable[[CreatableTopic], Awaitable[ErrorCode]],
        run_woken: Callable[[], None],
    ) -> None:
        """`create_topic` makes a topic and tells how it went; `run_woken` answers fetches that an
        append made answerable.
        """
        self._config = config
        self._node_id = config.node_id
        self._metadata = metadata
        self._replicas = replicas
        self._clock = clock
        self._rng = rng
        self._create_topic = create_topic
        self._run_woken = run_woken
        self._group_config = group_config(config)
        self._topics = ImageTopics(metadata)
        self._drivers: dict[int, GroupShardDriver] = {}
        self._creating: asyncio.Future[ErrorCode] | None = None
        self._expiry: asyncio.Task[None] | None = None
        self._stopped = False

    # -- where a group lives -------------------------------------------------------------------

    def partition_of(self, group_id: str) -> int | None:
        """The partition of the offsets topic that keeps the group; None while there is none."""
        topic = self._metadata.topics.get(OFFSETS_TOPIC)
        return None if topic is None else java_hash(group_id) % len(topic.partitions)

    async def coordinator_of(self, group_id: str) -> int:
        """The node that coordinates the group; ApiError if none does. Creates the offsets topic on
        first need.
        """
        if OFFSETS_TOPIC not in self._metadata.topics:
            await self._begin_topic()
        index = self.partition_of(group_id)
        if index is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        leader = self._metadata.topics[OFFSETS_TOPIC].partitions[index].leader
        if leader < 0:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC}-{index} has no leader"
            )
        return leader

    async def _begin_topic(self) -> None:
        """Have the topic created, and wait a moment for it: what the client sends behind this
        request must not wait for a controller that cannot be reached.
        """
        try:
            code = await asyncio.wait_for(self.make_topic(), CREATION_WAIT_S)
        except TimeoutError:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} is being created"
            ) from None
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{OFFSETS_TOPIC} could not be created: {code.name}",
            )

    async def make_topic(self) -> ErrorCode:
        """Create the offsets topic once, however many ask for it meanwhile."""
        if self._creating is None:
            self._creating = asyncio.ensure_future(self._create_topic(self.offsets_topic()))
            self._creating.add_done_callback(lambda _: setattr(self, "_creating", None))
        return await asyncio.shield(self._creating)

    def offsets_topic(self) -> CreatableTopic:
        """The offsets topic as it is to be created."""
        # Also those that are down at the moment: they will be back, the topic stays as it is made.
        brokers = len(self._metadata.brokers)
        return CreatableTopic(
            name=OFFSETS_TOPIC,
            num_partitions=self._config.offsets_topic_num_partitions,
            replication_factor=min(self._config.offsets_topic_replication_factor, brokers),
            configs=[
                CreatableTopicConfig(name=name, value=value)
                for name, value in (
                    ("cleanup.policy", "compact"),
                    ("compression.type", "producer"),
                    ("segment.bytes", str(self._config.offsets_topic_segment_bytes)),
                )
            ],
        )

    # -- requests ------------------------------------------------------------------------------

    def submit(
        self, group_id: str, request: Message, version: int, client_id: str, client_host: str
    ) -> Message | Awaitable[Message]:
        """Hand a request about one group to its shard: the answer, or a promise of it."""
        driver = self._driver_of(group_id)
        if driver is None:
            return refuse(request, version, ErrorCode.NOT_COORDINATOR)
        return driver.submit(request, version, client_id, client_host)

    def everywhere(
        self, request: Message, version: int, client_id: str, client_host: str
    ) -> list[Message | Awaitable[Message]]:
        """Hand a request about all groups to every shard of this node."""
        return [
            driver.submit(request, version, client_id, client_host)
            for driver in list(self._drivers.values())
        ]

    def _driver_of(self, group_id: str) -> GroupShardDriver | None:
        index = self.partition_of(group_id)
        if index is None or self._stopped:
            return None
        driver = self._drivers.get(index)
        if driver is None:
            leader = self._metadata.topics[OFFSETS_TOPIC].partitions[index].leader
            if leader != self._node_id:
                return None
            driver = self._start(index)
        return driver

    def _start(self, index: int) -> GroupShardDriver:
        def partition() -> Partition:
            return self._replicas.leader_of(OFFSETS_TOPIC, index)

        def make_shard() -> GroupShard:
            return GroupShard(self._group_config, self._topics, self._rng)

        # Two drivers of one shard would both write what their own timers say.
        invariant(index not in self._drivers, f"shard {index} is driven already")
        driver = GroupShardDriver(
            partition,
            make_shard,
            self._clock,
            self._run_woken,
            leader_epoch=self._metadata.topics[OFFSETS_TOPIC].partitions[index].leader_epoch,
            commit_timeout_s=self._config.offsets_commit_timeout_ms / 1000,
        )
        self._drivers[index] = driver
        driver.load()
        return driver

    # -- following the metadata ----------------------------------------------------------------

    def apply(self, delta: MetadataDelta) -> None:
        """The image has changed as `delta` says; before the partitions follow it."""
        if any(topic.name == OFFSETS_TOPIC for topic in delta.deleted_topics.values()):
            for driver in self._drivers.values():
                driver.close()
            self._drivers.clear()
            log.error("%s was deleted: committed offsets and groups are gone", OFFSETS_TOPIC)
        for index, registration in self._changed_shards(delta):
            led = self._drivers.get(index)
            if led is not None and (
                registration.leader != self._node_id
                or registration.leader_epoch != led.leader_epoch
            ):
                led.close()
                del self._drivers[index]
        by_id = self._metadata.topics_by_id
        deleted = frozenset(topic.name for topic in delta.deleted_topics.values())
        changed = deleted.union(
            (topic.name for topic in delta.created_topics.values()),
            (by_id[id_].name for id_, _ in delta.changed_partitions if id_ in by_id),
        )
        for driver in self._drivers.values() if changed else ():
            if deleted:
                driver.event(lambda shard, _: shard.topics_deleted(deleted))
            driver.event(lambda shard, now_ms: shard.topics_changed(changed, now_ms))

    def lead(self, delta: MetadataDelta) -> None:
        """Load the shards that this node leads now; after the partitions have followed `delta`."""
        if self._expiry is None:
            return  # `start` has not been called: it looks at all shards
        for index, registration in self._changed_shards(delta):
            if registration.leader == self._node_id and index not in self._drivers:
                self._start(index)

    def _changed_shards(self, delta: MetadataDelta) -> list[tuple[int, RegisteredPartition]]:
        topic = self._metadata.topics.get(OFFSETS_TOPIC)
        if topic is None or self._stopped or topic.id in delta.created_topics:
            return []  # what is new has nothing to load
        indexes = sorted(index for id_, index in delta.changed_partitions if id_ == topic.id)
        return [(index, topic.partitions[index]) for index in indexes]

    # -- duties --------------------------------------------------------------------------------

    def start(self, stored: set[TopicPartition]) -> None:
        """Load the shards whose partitions are among the `stored` logs; begin to expire offsets."""
        topic = self._metadata.topics.get(OFFSETS_TOPIC)
        for index, partition in enumerate(topic.partitions if topic is not None else ()):
            if index in self._drivers:
                continue  # the metadata that came in since has started it
            if partition.leader == self._node_id and (OFFSETS_TOPIC, index) in stored:
                self._start(index)
        self._expiry = asyncio.create_task(self._expire_regularly())

    async def _expire_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._config.offsets_retention_check_interval_ms / 1000)
            for driver in list(self._drivers.values()):
                while driver.event(lambda shard, now_ms: shard.expire(now_ms)):
                    await asyncio.sleep(0)

    def write_turn(self) -> None:
        """Write what the shards have staged in this turn; before a log is changed otherwise."""
        for driver in self._drivers.values():
            driver.write_turn()

    def group_count(self) -> int:
        return sum(len(driver.shard.groups) for driver in self._drivers.values())

    def committed_offsets(self) -> Iterator[GroupOffset]:
        """The committed offsets of all loaded groups, for lag; groups may change meanwhile."""
        for driver in list(self._drivers.values()):
            if driver.state is ShardState.ACTIVE:
                offsets = driver.shard.offsets
                for group_id in offsets.group_ids():
                    yield from offsets.of_group(group_id)

    def end_waiting(self) -> None:
        """The node stops: whoever waits for a rebalance looks for another coordinator."""
        self._stopped = True
        for driver in self._drivers.values():
            driver.close()

    async def stop(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            await asyncio.gather(self._expiry, return_exceptions=True)


def group_config(config: BrokerConfig) -> GroupConfig:
    """What the coordinator reads of the node's settings; the names are the same."""
    return GroupConfig(
        **{field.name: getattr(config, field.name) for field in dataclasses.fields(GroupConfig)}
    )


def java_hash(text: str) -> int:
    """Java's `String.hashCode`, made positive as Kafka does: a group's place among partitions."""
    code = 0
    units = iter(text.encode("utf-16-be"))
    for high, low in zip(units, units, strict=True):
        code = (code * 31 + (high << 8 | low)) & _HASH_MASK
    # As a signed number its absolute value, where the smallest has none and counts as 0.
    return 0 if code == 1 << 31 else min(code, (1 << 32) - code)
