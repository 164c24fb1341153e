"""What the coordinators of a node share: a shard for each partition it leads of an internal topic.

Duty: find the partition of a key (a group's id, a transactional id) by Kafka's hash, and the driver
of its shard; create the topic on first need; load a shard when this node begins to lead its
partition and close it when another does; expire what is old. Shards whose partition has no files
yet have nothing to load and are made when a key needs them.

A shard belongs to one leader epoch: what it holds in memory rests on what that leader wrote, so a
new epoch, even of the same node, begins with a replay. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic

from penstock.base.errors import ApiError, ErrorCode, invariant
from penstock.base.ids import TopicPartition
from penstock.coordinating.shard_driver import S, ShardDriver, ShardKind, ShardState
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig

if TYPE_CHECKING:
    from penstock.base.clock import Clock, Rng
    from penstock.config.broker_config import BrokerConfig
    from penstock.coordinator.effects import Effects
    from penstock.metadata.delta import MetadataDelta
    from penstock.metadata.image import MetadataImage
    from penstock.metadata.image import Partition as RegisteredPartition
    from penstock.partitions.partition import Partition
    from penstock.partitions.replica_manager import ReplicaManager
    from penstock.wire.schema import Message

log = logging.getLogger("penstock.coordinating")

_HASH_MASK: Final = 0xFFFF_FFFF
CREATION_WAIT_S: Final = 0.25
"""How long a client that asks for a coordinator waits for its topic to be created."""


@dataclass(frozen=True, slots=True)
class CoordinatorEnvironment:
    """What a node's coordinators work with."""

    config: BrokerConfig
    metadata: MetadataImage
    replicas: ReplicaManager
    clock: Clock
    rng: Rng
    create_topic: Callable[[CreatableTopic], Awaitable[ErrorCode]]
    """Creates a topic; the error code, 0 if it was created."""


class InternalTopic:
    """An internal topic as it is to be created."""

    def __init__(
        self, name: str, partitions: int, replication_factor: int, configs: dict[str, str]
    ) -> None:
        self.name = name
        self._partitions = partitions
        self._replication_factor = replication_factor
        self._configs = configs

    def creatable(self, brokers: int) -> CreatableTopic:
        """For a cluster of so many brokers: no more replicas are asked for than there are."""
        return CreatableTopic(
            name=self.name,
            num_partitions=self._partitions,
            replication_factor=min(self._replication_factor, brokers),
            configs=[
                CreatableTopicConfig(name=name, value=value)
                for name, value in self._configs.items()
            ],
        )


class ShardedCoordinator(ABC, Generic[S]):
    def __init__(
        self,
        env: CoordinatorEnvironment,
        kind: ShardKind,
        topic: InternalTopic,
        *,
        commit_timeout_s: float,
        expiry_interval_s: float,
    ) -> None:
        self._env = env
        self._kind = kind
        self._topic = topic
        self._topic_name = topic.name
        self._commit_timeout_s = commit_timeout_s
        self._expiry_interval_s = expiry_interval_s
        self._node_id = env.config.node_id
        self._metadata = env.metadata
        self._drivers: dict[int, ShardDriver[S]] = {}
        self._creating: asyncio.Future[ErrorCode] | None = None
        self._expiry: asyncio.Task[None] | None = None
        self._stopped = False

    @abstractmethod
    def _make_shard(self, index: int, leader_epoch: int) -> S:
        """An empty shard for a partition."""

    @abstractmethod
    def _expire(self, shard: S, now_ms: int) -> Effects:
        """Have a shard drop what is old; called again while that yields records."""

    def _action(self, index: int, action: Any) -> None:
        """Carry out an action of a partition's shard."""
        raise NotImplementedError(f"shard {index} of {self._topic_name} asks for {action}")

    def _given_up(self, index: int) -> None:
        """The shard of a partition was dropped, and its actions with it."""

    # -- the partition of a key ----------------------------------------------------------------

    def partition_of(self, key: str) -> int | None:
        """The partition of the internal topic that keeps `key`; None while there is none."""
        topic = self._metadata.topics.get(self._topic_name)
        return None if topic is None else java_hash(key) % len(topic.partitions)

    async def coordinator_of(self, key: str) -> int:
        """The node that coordinates `key`; ApiError if none does. Creates the internal topic on
        first need.
        """
        if self._topic_name not in self._metadata.topics:
            await self._begin_topic()
        leader = self.leader_of(key)
        if leader is None:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"the partition of {self._topic_name} that keeps {key!r} has no leader",
            )
        return leader

    def leader_of(self, key: str) -> int | None:
        """The node that coordinates `key`, as far as the metadata knows."""
        index = self.partition_of(key)
        if index is None:
            return None
        leader = self._metadata.topics[self._topic_name].partitions[index].leader
        return leader if leader >= 0 else None

    async def _begin_topic(self) -> None:
        """Have the topic created, and wait a moment for it: the client's next requests must not
        wait for a controller that cannot be reached.
        """
        try:
            code = await asyncio.wait_for(self.make_topic(), CREATION_WAIT_S)
        except TimeoutError:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self._topic_name} is being created"
            ) from None
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{self._topic_name} could not be created: {code.name}",
            )

    async def make_topic(self) -> ErrorCode:
        """Create the internal topic once, however many requests need it meanwhile."""
        if self._creating is None:
            # Also those that are down at the moment: they will be back, the topic stays as it is
            # made.
            wanted = self._topic.creatable(len(self._metadata.brokers))
            self._creating = asyncio.ensure_future(self._env.create_topic(wanted))
            self._creating.add_done_callback(lambda _: setattr(self, "_creating", None))
        return await asyncio.shield(self._creating)

    # -- requests ------------------------------------------------------------------------------

    def submit(
        self, key: str, request: Message, version: int, client_id: str, client_host: str
    ) -> Message | Awaitable[Message]:
        """Pass a request about one key to its shard: the answer, or a future of it."""
        driver = self._driver_of(key)
        if driver is None:
            return self._kind.refuse(request, version, ErrorCode.NOT_COORDINATOR)
        return driver.submit(request, version, client_id, client_host)

    def everywhere(
        self, request: Message, version: int, client_id: str, client_host: str
    ) -> list[Message | Awaitable[Message]]:
        """Pass a request about all keys to every shard of this node."""
        return [
            driver.submit(request, version, client_id, client_host)
            for driver in list(self._drivers.values())
        ]

    def _driver_of(self, key: str) -> ShardDriver[S] | None:
        index = self.partition_of(key)
        return None if index is None else self._driver_at(index)

    def _driver_at(self, index: int) -> ShardDriver[S] | None:
        """The driver of a partition's shard, if this node leads it."""
        topic = self._metadata.topics.get(self._topic_name)
        if topic is None or self._stopped or not 0 <= index < len(topic.partitions):
            return None
        driver = self._drivers.get(index)
        if driver is None and topic.partitions[index].leader == self._node_id:
            driver = self._start(index)
        return driver

    def _start(self, index: int) -> ShardDriver[S]:
        leader_epoch = self._metadata.topics[self._topic_name].partitions[index].leader_epoch

        def partition() -> Partition:
            return self._env.replicas.leader_of(self._topic_name, index)

        # Two drivers of one shard would both write for their own timers.
        invariant(index not in self._drivers, f"shard {index} is driven already")
        driver = ShardDriver(
            self._kind,
            partition,
            lambda: self._make_shard(index, leader_epoch),
            self._env.clock,
            leader_epoch=leader_epoch,
            commit_timeout_s=self._commit_timeout_s,
            on_action=lambda action: self._action(index, action),
            on_given_up=lambda: self._given_up(index),
        )
        self._drivers[index] = driver
        driver.load()
        return driver

    def _active_shards(self) -> Iterator[S]:
        """The shards that are loaded; they may come and go meanwhile."""
        for driver in list(self._drivers.values()):
            if driver.state is ShardState.ACTIVE:
                yield driver.shard

    # -- following the metadata ----------------------------------------------------------------

    def apply(self, delta: MetadataDelta) -> None:
        """`delta` was applied to the image; before the partitions follow it."""
        if any(topic.name == self._topic_name for topic in delta.deleted_topics.values()):
            for driver in self._drivers.values():
                driver.close()
            self._drivers.clear()
            log.error("%s was deleted, and all that it kept is gone", self._topic_name)
        for index, registration in self._changed_shards(delta):
            led = self._drivers.get(index)
            if led is not None and (
                registration.leader != self._node_id
                or registration.leader_epoch != led.leader_epoch
            ):
                led.close()
                del self._drivers[index]

    def lead(self, delta: MetadataDelta) -> None:
        """Load the shards that this node leads now; after the partitions have followed `delta`."""
        if self._expiry is None:
            return  # `start` has not been called: it loads all shards
        for index, registration in self._changed_shards(delta):
            if registration.leader == self._node_id and index not in self._drivers:
                self._start(index)

    def _changed_shards(self, delta: MetadataDelta) -> list[tuple[int, RegisteredPartition]]:
        topic = self._metadata.topics.get(self._topic_name)
        if topic is None or self._stopped or topic.id in delta.created_topics:
            return []  # a new partition has nothing to load
        indexes = sorted(index for id_, index in delta.changed_partitions if id_ == topic.id)
        return [(index, topic.partitions[index]) for index in indexes]

    # -- duties --------------------------------------------------------------------------------

    def start(self, stored: set[TopicPartition]) -> None:
        """Load the shards whose partitions are among the `stored` logs; begin to expire."""
        topic = self._metadata.topics.get(self._topic_name)
        for index, partition in enumerate(topic.partitions if topic is not None else ()):
            if index in self._drivers:
                continue  # a change of the metadata has started it since
            if partition.leader == self._node_id and (self._topic_name, index) in stored:
                self._start(index)
        self._expiry = asyncio.create_task(self._expire_regularly())

    async def _expire_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._expiry_interval_s)
            for driver in list(self._drivers.values()):
                while driver.event(self._expire):
                    await asyncio.sleep(0)

    def end_waiting(self) -> None:
        """The node stops: waiting clients have to find another coordinator."""
        self._stopped = True
        for driver in self._drivers.values():
            driver.close()

    async def stop(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            await asyncio.gather(self._expiry, return_exceptions=True)


def java_hash(text: str) -> int:
    """Java's `String.hashCode`, made positive as in Kafka: it decides a key's partition."""
    code = 0
    units = iter(text.encode("utf-16-be"))
    for high, low in zip(units, units, strict=True):
        code = (code * 31 + (high << 8 | low)) & _HASH_MASK
    # As a signed number its absolute value, where the smallest has none and counts as 0.
    return 0 if code == 1 << 31 else min(code, (1 << 32) - code)
