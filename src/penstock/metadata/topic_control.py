"""Decisions about topics: create, delete, add partitions.

Each takes the image, decides for each topic of the request by itself (one bad topic does not
spoil the others), and returns the records to append with the answer to give once they are
committed. Nothing is changed here.

A request can be about ten thousand partitions: the work is done in steps, `ELEMENTS_PER_STEP`
topics or partitions each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from penstock.base.clock import Rng
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import ZERO_UUID, Uuid
from penstock.base.steps import Steps
from penstock.config.layers import BrokerSettings
from penstock.config.log_config import check_topic_settings
from penstock.config.table import ConfigError
from penstock.metadata.assignments import check_manual, new_partition, placed
from penstock.metadata.image import MetadataImage, ResourceType, Topic, collision_name
from penstock.metadata.names import check_new_topic_name
from penstock.metadata.placement import Load
from penstock.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from penstock.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from penstock.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

PARTITIONS_PER_REQUEST_MAX: Final = 10_000
"""One request makes at most this many partitions, so that its records fit into one batch."""
ELEMENTS_PER_STEP: Final = 100
DEFAULT: Final = -1
"""In a request: the broker's default partition count or replication factor."""


Admit: TypeAlias = Callable[[int], None]
"""Is told how many partitions are about to be made or deleted; `ApiError` if that is too many for
the client's quota. Asked last: what is refused for another reason uses none of it.
"""


def everything(partitions: int) -> None:
    """No quota."""


def admitting(admits: Callable[[int], bool]) -> Admit:
    """Refuses what it does not admit, as Kafka's protocol says it."""

    def admit(partitions: int) -> None:
        if not admits(partitions):
            raise ApiError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                "the quota of controller mutations is used up: try again when throttle_time_ms is "
                "over",
            )

    return admit


class CreateTopics:
    """One CreateTopics request; what it has decided so far counts for the topics after."""

    def __init__(
        self,
        image: MetadataImage,
        settings: BrokerSettings,
        load: Load,
        rng: Rng,
        admit: Admit = everything,
    ) -> None:
        """`load` is what the brokers hold; it gets what is decided here added."""
        self._image = image
        self._admit = admit
        self._load = load
        self._settings = settings
        self._rng = rng
        self._new: dict[str, str] = {}
        # Topics of one request mostly have the same settings: each kind is described once.
        self._described: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]] = {}
        self.records: list[MetadataRecord] = []

    def decide(self, request: CreateTopicsRequest) -> Steps[CreateTopicsResponse]:
        times = Counter(topic.name for topic in request.topics)
        total = sum(self._partition_count(topic) for topic in request.topics)
        results: dict[str, CreatableTopicResult] = {}
        for number, topic in enumerate(request.topics, 1):
            if number % ELEMENTS_PER_STEP == 0:
                yield
            try:
                if times[topic.name] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "the topic is in the request twice")
                if total > PARTITIONS_PER_REQUEST_MAX:
                    raise too_many_partitions(total)
                results[topic.name] = yield from self._create(topic)
            except ApiError as e:
                results[topic.name] = CreatableTopicResult(
                    name=topic.name, error_code=e.code, error_message=e.message
                )
        return CreateTopicsResponse(topics=list(results.values()))

    def _create(self, topic: CreatableTopic) -> Steps[CreatableTopicResult]:
        self._check_name(topic.name)
        overrides = self._overrides(topic)
        replicas = self._assignments(topic)
        topic_id = self._rng.uuid()
        records: list[MetadataRecord] = [TopicRecord(name=topic.name, topic_id=topic_id)]
        records += [
            ConfigRecord(
                resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value
            )
            for name, value in overrides.items()
        ]
        partitions = yield from _new_partitions(self._image, topic_id, 0, replicas)
        self._admit(len(partitions))
        self.records += records
        self.records += partitions
        self._new[collision_name(topic.name)] = topic.name
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic_id,
            error_message=None,
            num_partitions=len(partitions),
            replication_factor=len(partitions[0].replicas),
            configs=self._configs(overrides),
        )

    def _configs(self, overrides: dict[str, str]) -> list[CreatableTopicConfigs]:
        key = frozenset(overrides.items())
        described = self._described.get(key)
        if described is None:
            described = self._described[key] = [
                CreatableTopicConfigs(
                    name=entry.name,
                    value=entry.value,
                    read_only=entry.read_only,
                    config_source=entry.source,
                    is_sensitive=entry.sensitive,
                )
                for entry in self._settings.describe_topic(overrides)
            ]
        return described

    def _check_name(self, name: str) -> None:
        check_new_topic_name(name)
        if name in self._image.topics:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"the topic {name!r} already exists")
        other = self._image.collision(name) or self._new.get(collision_name(name))
        if other is not None:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"the topic {name!r} collides with {other!r}: names must differ in more than "
                "'.' and '_'",
            )

    def _overrides(self, topic: CreatableTopic) -> dict[str, str]:
        overrides = {}
        for config in topic.configs:
            if config.value is None:
                raise ApiError(
                    ErrorCode.INVALID_CONFIG, f"{config.name} has no value: leave it out or set it"
                )
            overrides[config.name] = config.value
        try:
            check_topic_settings(overrides, self._settings.config)
        except ConfigError as e:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(e)) from e
        return overrides

    def _partition_count(self, topic: CreatableTopic) -> int:
        if topic.assignments:
            return len(topic.assignments)
        if topic.num_partitions == DEFAULT:
            return self._settings.config.num_partitions
        return max(topic.num_partitions, 0)

    def _assignments(self, topic: CreatableTopic) -> Iterable[Sequence[int]]:
        if topic.assignments:
            return self._manual(topic)
        if topic.num_partitions != DEFAULT and topic.num_partitions < 1:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"a topic cannot have {topic.num_partitions} partitions: give at least 1, or -1 "
                "for the broker's default",
            )
        factor = topic.replication_factor
        if factor != DEFAULT and factor < 1:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"a partition cannot have {factor} replicas: give at least 1, or -1 for the "
                "broker's default",
            )
        if factor == DEFAULT:
            factor = self._settings.config.default_replication_factor
        return placed(self._image, self._load, self._partition_count(topic), factor, self._rng)

    def _manual(self, topic: CreatableTopic) -> list[list[int]]:
        if topic.num_partitions != DEFAULT or topic.replication_factor != DEFAULT:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "a replica assignment needs partition count and replication factor to be -1",
            )
        assignments = sorted(topic.assignments, key=_partition_index)
        if [a.partition_index for a in assignments] != list(range(len(assignments))):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "the replica assignment must number its partitions 0, 1, 2, ... once each",
            )
        replicas = [assignment.broker_ids for assignment in assignments]
        check_manual(self._image, replicas)
        return replicas


def _partition_index(assignment: CreatableReplicaAssignment) -> int:
    return assignment.partition_index


def too_many_partitions(count: int) -> ApiError:
    return ApiError(
        ErrorCode.POLICY_VIOLATION,
        f"{count} partitions are too many for one request: at most {PARTITIONS_PER_REQUEST_MAX}",
    )


def _new_partitions(
    image: MetadataImage, topic_id: Uuid, first: int, replicas: Iterable[Sequence[int]]
) -> Steps[list[PartitionRecord]]:
    records = []
    for index, brokers in enumerate(replicas, first):
        records.append(new_partition(image, topic_id, index, brokers))
        if len(records) % ELEMENTS_PER_STEP == 0:
            yield
    return records


def delete_topics(
    image: MetadataImage, request: DeleteTopicsRequest, admit: Admit = everything
) -> Steps[tuple[list[MetadataRecord], DeleteTopicsResponse]]:
    wanted = [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]
    names = Counter(topic.name for topic in wanted if topic.name is not None)
    ids = Counter(topic.topic_id for topic in wanted if topic.topic_id != ZERO_UUID)
    records: list[MetadataRecord] = []
    results: dict[tuple[str | None, Uuid], DeletableTopicResult] = {}
    doomed: set[Uuid] = set()
    for number, state in enumerate(wanted, 1):
        if number % ELEMENTS_PER_STEP == 0:
            yield
        key = (state.name, state.topic_id)
        try:
            if (state.name is not None and names[state.name] > 1) or ids[state.topic_id] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the topic is in the request twice")
            topic = _find(image, state)
            if topic.id in doomed:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the topic is in the request twice")
            admit(len(topic.partitions))
        except ApiError as e:
            results[key] = DeletableTopicResult(
                name=state.name,
                topic_id=state.topic_id,
                error_code=e.code,
                error_message=e.message,
            )
            continue
        doomed.add(topic.id)
        records.append(RemoveTopicRecord(topic_id=topic.id))
        results[key] = DeletableTopicResult(name=topic.name, topic_id=topic.id)
    return records, DeleteTopicsResponse(responses=list(results.values()))


def _find(image: MetadataImage, state: DeleteTopicState) -> Topic:
    has_id = state.topic_id != ZERO_UUID
    if has_id == (state.name is not None):
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "give either the name or the id of the topic to delete"
        )
    if state.name is None:
        topic = image.topics_by_id.get(state.topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
        return topic
    topic = image.topics.get(state.name)
    if topic is None:
        raise unknown_topic(state.name)
    return topic


def unknown_topic(name: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")


def create_partitions(
    image: MetadataImage,
    load: Load,
    request: CreatePartitionsRequest,
    rng: Rng,
    admit: Admit = everything,
) -> Steps[tuple[list[MetadataRecord], CreatePartitionsResponse]]:
    times = Counter(topic.name for topic in request.topics)
    records: list[MetadataRecord] = []
    results: dict[str, CreatePartitionsTopicResult] = {}
    for number, topic in enumerate(request.topics, 1):
        if number % ELEMENTS_PER_STEP == 0:
            yield
        result = results[topic.name] = CreatePartitionsTopicResult(name=topic.name)
        try:
            if times[topic.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the topic is in the request twice")
            added = yield from _added_partitions(image, load, topic, rng)
            if len(records) + len(added) > PARTITIONS_PER_REQUEST_MAX:
                raise too_many_partitions(len(records) + len(added))
            admit(len(added))
            records += added
        except ApiError as e:
            result.error_code, result.error_message = e.code, e.message
    return records, CreatePartitionsResponse(results=list(results.values()))


def _added_partitions(
    image: MetadataImage, load: Load, wanted: CreatePartitionsTopic, rng: Rng
) -> Steps[list[PartitionRecord]]:
    topic = image.topics.get(wanted.name)
    if topic is None:
        raise unknown_topic(wanted.name)
    existing = len(topic.partitions)
    added = wanted.count - existing
    if added <= 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"the topic {wanted.name!r} has {existing} partition(s), and {wanted.count} is no "
            "increase: partitions are never removed",
        )
    if added > PARTITIONS_PER_REQUEST_MAX:
        raise too_many_partitions(added)
    factor = len(topic.partitions[0].replicas)
    replicas: Iterable[Sequence[int]]
    if wanted.assignments:
        assigned = [assignment.broker_ids for assignment in wanted.assignments]
        if len(assigned) != added:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{added} partition(s) are added, but the assignment has {len(assigned)}",
            )
        check_manual(image, assigned, factor)
        replicas = assigned
    else:
        replicas = placed(
            image, load, added, factor, rng, [partition.replicas for partition in topic.partitions]
        )
    return (yield from _new_partitions(image, topic.id, existing, replicas))
