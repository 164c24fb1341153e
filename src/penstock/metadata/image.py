"""The state that metadata records build: topics, partitions, settings, brokers, features, and who
may do what (`security_image.py`).

An image is changed in place, by one thread, record by record: each record costs the same whatever
the cluster's size. Partition states are immutable and replaced, so that a reader may keep one.
Replaying the same records always gives an equal image. Copies share topics with their original
until one of the two changes a topic, so that copying costs one step per topic and no more.

A record that contradicts the image (a partition of a topic that is not there) breaks an
invariant: the log was not written by this controller, and going on would lose data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from penstock.base.errors import InvariantBroken, invariant
from penstock.base.ids import Uuid, uuid_text
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.records import (
    CORDONED_LOG_DIRS_FROM,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_MIN,
    NO_LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_STATE_CHANGE,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from penstock.metadata.security_image import APPLY as APPLY_SECURITY
from penstock.metadata.security_image import FrozenSecurity, SecurityImage, different
from penstock.metadata.security_records import ROLES_VERSION, SecurityRecord

T = TypeVar("T")


class ResourceType(IntEnum):
    """What a setting belongs to, numbered as the protocol and the records do."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Partition(NamedTuple):
    """One partition's state; `leader` is -1 when there is none.

    `elr` are the eligible leader replicas: outside the ISR, with all that is committed.
    `last_known_elr` is the leader that a partition without one had last.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    directories: tuple[Uuid, ...] = ()
    recovery_state: int = 0
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


@dataclass(slots=True, eq=True)
class Topic:
    """A topic; `partitions[i]` is partition i."""

    name: str
    id: Uuid
    partitions: list[Partition] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Broker:
    id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[Uuid, ...]
    features: tuple[BrokerFeature, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] = ()

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        """Where clients of `listener` reach the broker."""
        return next((e for e in self.endpoints if e.name == listener), None)


_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})


class FrozenImage(NamedTuple):
    """An image as it was at one moment; nothing in it changes any more."""

    topics: Mapping[str, Topic]
    brokers: Mapping[int, Broker]
    configs: Mapping[tuple[int, str], Mapping[str, str]]
    features: Mapping[str, int]
    next_producer_id: int
    security: FrozenSecurity


class MetadataImage:
    """Everything the metadata log says up to the last applied record."""

    __slots__ = (
        "_by_collision_name",
        "_own_topics",
        "_tuples",
        "brokers",
        "configs",
        "features",
        "next_producer_id",
        "partition_count",
        "security",
        "topics",
        "topics_by_id",
    )

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[Uuid, Topic] = {}
        self.partition_count = 0
        self.brokers: dict[int, Broker] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        self.security = SecurityImage()
        # Topic names with `.` as `_`, which metrics cannot tell apart; several only if an older
        # log has them.
        self._by_collision_name: dict[str, set[str]] = {}
        # Most partitions have the same few replica sets: each is kept once.
        self._tuples: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        # The topics that no copy shares, so that they may be changed in place; None for all.
        self._own_topics: set[Uuid] | None = None

    def frozen(self) -> FrozenImage:
        """The image as it is now, for a reader that works on while this image changes."""
        self._own_topics = set()
        return FrozenImage(
            dict(self.topics),
            dict(self.brokers),
            dict(self.configs),
            dict(self.features),
            self.next_producer_id,
            self.security.frozen(),
        )

    def copy(self) -> MetadataImage:
        """An equal image that goes its own way from here."""
        image = MetadataImage()
        image._take(self)
        return image

    def replace_with(self, other: MetadataImage) -> MetadataDelta:
        """Becomes equal to `other`, as after a snapshot was loaded; says what that changed."""
        delta = MetadataDelta()
        for topic_id, topic in self.topics_by_id.items():
            if topic_id not in other.topics_by_id:
                delta.topic_deleted(topic)
        for topic_id, topic in other.topics_by_id.items():
            known = self.topics_by_id.get(topic_id)
            if known is None:
                delta.topic_created(topic)
            old = [] if known is None else known.partitions
            for index, partition in enumerate(topic.partitions):
                if index >= len(old) or old[index] != partition:
                    delta.changed_partitions.add((topic_id, index))
        delta.changed_configs |= different(self.configs, other.configs)
        delta.changed_brokers |= different(self.brokers, other.brokers)
        delta.features_changed = self.features != other.features
        delta.security = self.security.changes_to(other.security)
        self._take(other)
        return delta

    def _take(self, other: MetadataImage) -> None:
        self._own_topics, other._own_topics = set(), set()
        self.topics = dict(other.topics)
        self.topics_by_id = dict(other.topics_by_id)
        self.partition_count = other.partition_count
        self.brokers = dict(other.brokers)
        self.configs = dict(other.configs)
        self.features = dict(other.features)
        self.next_producer_id = other.next_producer_id
        self.security.take(other.security)
        self._by_collision_name = {k: set(v) for k, v in other._by_collision_name.items()}
        self._tuples = dict(other._tuples)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MetadataImage):
            return NotImplemented
        return all(
            getattr(self, name) == getattr(other, name)
            for name in self.__slots__
            if name not in ("_own_topics", "_tuples")
        )

    __hash__ = None  # type: ignore[assignment]

    def partition(self, topic_id: Uuid, index: int) -> Partition | None:
        topic = self.topics_by_id.get(topic_id)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The settings stored for one resource; empty when there are none."""
        return self.configs.get((resource_type, name), _NO_SETTINGS)

    @property
    def metadata_version(self) -> int:
        """The finalised level that says in which versions records are written."""
        return self.features.get(METADATA_VERSION, METADATA_VERSION_MIN)

    @property
    def keeps_elr(self) -> bool:
        """Whether partitions have eligible leader replicas."""
        return self.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0

    @property
    def has_roles(self) -> bool:
        """Whether there may be roles."""
        return self.features.get(ROLES_VERSION, 0) > 0

    def topic_config(self, name: str) -> Mapping[str, str]:
        return self.config(ResourceType.TOPIC, name)

    def collision(self, name: str) -> str | None:
        """An existing topic whose name differs from `name` only in `.` and `_`."""
        others = self._by_collision_name.get(collision_name(name), ())
        return min((other for other in others if other != name), default=None)

    def apply(
        self,
        records: Iterable[MetadataRecord],
        delta: MetadataDelta,
        made: Sequence[Partition] = (),
    ) -> None:
        """Applies `records` in order and notes in `delta` what they changed. `made` are the
        partitions of its PartitionRecords, in order, if somebody has made them (`partition_of`).
        """
        ready = iter(made)
        for record in records:
            if made and isinstance(record, PartitionRecord):
                self._put_partition(record, next(ready), delta)
            else:
                _APPLY[type(record)](self, record, delta)

    def _shared(self, items: list[T]) -> tuple[T, ...]:
        found = tuple(items)
        return self._tuples.setdefault(found, found)

    def _topic(self, topic_id: Uuid) -> Topic:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise InvariantBroken(f"metadata speaks of a missing topic {uuid_text(topic_id)}")
        return topic

    def _topic_to_change(self, topic_id: Uuid) -> Topic:
        """The topic, as a copy of its own where another image shares it."""
        topic = self._topic(topic_id)
        if self._own_topics is not None and topic_id not in self._own_topics:
            topic = Topic(topic.name, topic.id, topic.partitions.copy())
            self.topics[topic.name] = topic
            self.topics_by_id[topic_id] = topic
            self._own_topics.add(topic_id)
        return topic

    def _apply_topic(self, record: TopicRecord, delta: MetadataDelta) -> None:
        invariant(record.name not in self.topics, f"metadata creates topic {record.name} twice")
        topic = Topic(record.name, record.topic_id)
        self.topics[topic.name] = topic
        self.topics_by_id[topic.id] = topic
        if self._own_topics is not None:
            self._own_topics.add(topic.id)
        self._by_collision_name.setdefault(collision_name(topic.name), set()).add(topic.name)
        delta.topic_created(topic)

    def _apply_remove_topic(self, record: RemoveTopicRecord, delta: MetadataDelta) -> None:
        topic = self._topic(record.topic_id)
        del self.topics[topic.name]
        del self.topics_by_id[topic.id]
        self.partition_count -= len(topic.partitions)
        self.configs.pop((ResourceType.TOPIC, topic.name), None)
        normal = collision_name(topic.name)
        names = self._by_collision_name[normal]
        names.discard(topic.name)
        if not names:
            del self._by_collision_name[normal]
        delta.topic_deleted(topic)

    def _apply_partition(self, record: PartitionRecord, delta: MetadataDelta) -> None:
        self._put_partition(record, self.partition_of(record), delta)

    def partition_of(self, record: PartitionRecord) -> Partition:
        """The partition as the record says it."""
        return Partition(
            self._shared(record.replicas),
            self._shared(record.isr),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            self._shared(record.removing_replicas),
            self._shared(record.adding_replicas),
            self._shared(record.directories),
            record.leader_recovery_state,
            self._shared(record.eligible_leader_replicas or []),
            self._shared(record.last_known_elr or []),
        )

    def _put_partition(
        self, record: PartitionRecord, partition: Partition, delta: MetadataDelta
    ) -> None:
        topic = self._topic_to_change(record.topic_id)
        index = record.partition_id
        if not 0 <= index <= len(topic.partitions):
            raise InvariantBroken(
                f"metadata numbers partition {index} of {topic.name} after {len(topic.partitions)}"
            )
        if index == len(topic.partitions):
            topic.partitions.append(partition)
            self.partition_count += 1
        else:
            topic.partitions[index] = partition
        delta.changed_partitions.add((topic.id, index))

    def _apply_partition_change(self, record: PartitionChangeRecord, delta: MetadataDelta) -> None:
        topic = self._topic_to_change(record.topic_id)
        index = record.partition_id
        if not 0 <= index < len(topic.partitions):
            raise InvariantBroken(
                f"metadata changes partition {index} of {topic.name}, which is missing"
            )
        topic.partitions[index] = changed(topic.partitions[index], record)
        delta.changed_partitions.add((topic.id, index))

    def _apply_clear_elr(self, record: ClearElrRecord, delta: MetadataDelta) -> None:
        """Nobody is eligible any more, apart from the ISR: under another `min.insync.replicas`
        the leader may have committed more than those had.

        Unlike in Kafka, partitions without a leader keep theirs: nothing can have been committed,
        and nobody else could lead.
        """
        if record.topic_name:
            invariant(
                record.topic_name in self.topics,
                f"metadata speaks of a missing topic {record.topic_name}",
            )
            topics = [self.topics[record.topic_name]]
        else:
            topics = list(self.topics.values())
        for topic in topics:
            for index, partition in enumerate(topic.partitions):
                if (partition.elr or partition.last_known_elr) and partition.leader != NO_LEADER:
                    own = self._topic_to_change(topic.id)
                    own.partitions[index] = partition._replace(
                        partition_epoch=partition.partition_epoch + 1, elr=(), last_known_elr=()
                    )
                    delta.changed_partitions.add((topic.id, index))

    def _apply_config(self, record: ConfigRecord, delta: MetadataDelta) -> None:
        key = (record.resource_type, record.resource_name)
        settings = dict(self.configs.get(key, _NO_SETTINGS))
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value
        if settings:
            self.configs[key] = settings
        else:
            self.configs.pop(key, None)
        delta.changed_configs.add(key)

    def _apply_register_broker(self, record: RegisterBrokerRecord, delta: MetadataDelta) -> None:
        self.brokers[record.broker_id] = broker_of(record)
        delta.changed_brokers.add(record.broker_id)

    def _apply_unregister_broker(
        self, record: UnregisterBrokerRecord, delta: MetadataDelta
    ) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        del self.brokers[record.broker_id]
        delta.changed_brokers.add(record.broker_id)

    def _apply_registration_change(
        self, record: BrokerRegistrationChangeRecord, delta: MetadataDelta
    ) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        cordoned = record.cordoned_log_dirs
        self.brokers[broker.id] = replace(
            broker,
            fenced=record.fenced > 0 if record.fenced else broker.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown > 0
            or broker.in_controlled_shutdown,
            log_dirs=tuple(record.log_dirs) or broker.log_dirs,
            cordoned_log_dirs=broker.cordoned_log_dirs if cordoned is None else tuple(cordoned),
        )
        delta.changed_brokers.add(broker.id)

    def _broker(self, broker_id: int, epoch: int) -> Broker:
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise InvariantBroken(
                f"metadata changes broker {broker_id} of epoch {epoch}, which is not registered"
            )
        return broker

    def _apply_feature_level(self, record: FeatureLevelRecord, delta: MetadataDelta) -> None:
        # Level 0 is kept: it was finalised, which is not the same as a feature that nobody knew.
        self.features[record.name] = record.feature_level
        delta.features_changed = True
        if self.metadata_version < CORDONED_LOG_DIRS_FROM:
            self._forget_cordoned(delta)
        if not self.has_roles:
            self.security.forget_roles(delta.security)

    def _forget_cordoned(self, delta: MetadataDelta) -> None:
        """No record can say it at this level, so that a snapshot would lose it."""
        for broker in list(self.brokers.values()):
            if broker.cordoned_log_dirs:
                self.brokers[broker.id] = replace(broker, cordoned_log_dirs=())
                delta.changed_brokers.add(broker.id)

    def _apply_producer_ids(self, record: ProducerIdsRecord, delta: MetadataDelta) -> None:
        invariant(
            record.next_producer_id >= self.next_producer_id,
            f"metadata gives producer ids from {record.next_producer_id} out again",
        )
        self.next_producer_id = record.next_producer_id

    def _apply_no_op(self, record: NoOpRecord, delta: MetadataDelta) -> None:
        """Only moves the log on."""

    def _apply_security(self, record: SecurityRecord, delta: MetadataDelta) -> None:
        self.security.apply(record, delta.security)


_APPLY: Final[Mapping[type[Any], Callable[[MetadataImage, Any, MetadataDelta], None]]] = {
    TopicRecord: MetadataImage._apply_topic,
    RemoveTopicRecord: MetadataImage._apply_remove_topic,
    PartitionRecord: MetadataImage._apply_partition,
    PartitionChangeRecord: MetadataImage._apply_partition_change,
    ConfigRecord: MetadataImage._apply_config,
    RegisterBrokerRecord: MetadataImage._apply_register_broker,
    UnregisterBrokerRecord: MetadataImage._apply_unregister_broker,
    BrokerRegistrationChangeRecord: MetadataImage._apply_registration_change,
    FeatureLevelRecord: MetadataImage._apply_feature_level,
    ProducerIdsRecord: MetadataImage._apply_producer_ids,
    ClearElrRecord: MetadataImage._apply_clear_elr,
    NoOpRecord: MetadataImage._apply_no_op,
    **dict.fromkeys(APPLY_SECURITY, MetadataImage._apply_security),
}


def broker_of(record: RegisterBrokerRecord) -> Broker:
    """The broker as its registration makes it."""
    return Broker(
        record.broker_id,
        record.broker_epoch,
        record.incarnation_id,
        tuple(record.end_points),
        record.rack,
        record.fenced,
        record.in_controlled_shutdown,
        tuple(record.log_dirs),
        tuple(record.features),
        tuple(record.cordoned_log_dirs or ()),
    )


def changed(partition: Partition, record: PartitionChangeRecord) -> Partition:
    """`partition` after `record`: naming a leader, even the same one, starts a new leader epoch."""
    elects = record.leader != NO_LEADER_CHANGE
    return Partition(
        _either(record.replicas, partition.replicas),
        _either(record.isr, partition.isr),
        record.leader if elects else partition.leader,
        partition.leader_epoch + elects,
        partition.partition_epoch + 1,
        _either(record.removing_replicas, partition.removing),
        _either(record.adding_replicas, partition.adding),
        partition.directories if record.directories is None else tuple(record.directories),
        partition.recovery_state
        if record.leader_recovery_state == NO_RECOVERY_STATE_CHANGE
        else record.leader_recovery_state,
        _either(record.eligible_leader_replicas, partition.elr),
        _either(record.last_known_elr, partition.last_known_elr),
    )


def _either(new: list[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else tuple(new)


def collision_name(topic: str) -> str:
    """Topic names with the same collision name cannot both exist."""
    return topic.replace(".", "_")
