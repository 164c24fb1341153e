"""The partitions that this node leads, opened when they are first used.

Duty: from a topic's name or id and a partition's index to the `Partition`, or to the error that
says why not; and to follow the metadata: topics that go take their logs with them, changed
settings reach the logs, a new leader epoch reaches the partition. Owned by the event loop's
thread.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.base.errors import ApiError, ErrorCode, StorageError
from penstock.base.ids import TopicPartition, Uuid
from penstock.broker.batch_validation import BatchRules, InternalTopicRules
from penstock.broker.partition import Partition
from penstock.config.log_config import LogConfig
from penstock.log.manager import LogManager
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage, ResourceType, Topic
from penstock.metadata.names import INTERNAL_TOPICS
from penstock.observe.standard import TopicMetrics
from penstock.wire.produce_codec import TopicKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.broker.fetch import FetchInFlight
    from penstock.broker.flusher import Flusher

log = logging.getLogger("penstock.broker")


class ReplicaManager:
    def __init__(
        self,
        node_id: int,
        image: MetadataImage,
        logs: LogManager,
        flusher: Flusher,
        topic_metrics: TopicMetrics,
        log_config: Callable[[str], LogConfig],
        full_validation: Callable[[], bool],
    ) -> None:
        """`log_config` gives the settings of the topic with that name."""
        self._node_id = node_id
        self._image = image
        self._logs = logs
        self._flusher = flusher
        self._topic_metrics = topic_metrics
        self._log_config = log_config
        self._full_validation = full_validation
        # Each topic's open partitions, the same dict under its name and under its id.
        self._topics: dict[TopicKey, dict[int, Partition]] = {}
        self.woken: set[FetchInFlight] = set()

    def leader_of(self, topic: TopicKey, index: int) -> Partition:
        """The partition, if this node leads it; otherwise the ApiError for the client."""
        partitions = self._topics.get(topic)
        if partitions is not None:
            partition = partitions.get(index)
            if partition is not None:
                return partition
        return self._open(topic, index)

    def opened(self, topic: str, index: int) -> Partition | None:
        """The partition, if it has been used since the start."""
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(index)

    def open_partitions(self) -> Iterator[Partition]:
        for key, partitions in self._topics.items():
            if isinstance(key, str):
                yield from partitions.values()

    def topic(self, topic: TopicKey) -> Topic:
        if isinstance(topic, bytes):
            image = self._image.topics_by_id.get(topic)
            if image is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
            return image
        image = self._image.topics.get(topic)
        if image is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
        return image

    def _open(self, topic: TopicKey, index: int) -> Partition:
        image = self.topic(topic)
        if not 0 <= index < len(image.partitions):
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {image.name!r} has no partition {index}",
            )
        registration = image.partitions[index]
        if registration.leader != self._node_id:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        try:
            opened = self._logs.get_or_create(TopicPartition(image.name, index), image.id)
        except StorageError as e:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(e)) from e
        partition = Partition(
            image.name,
            image.id,
            index,
            opened,
            registration=registration,
            rules=self._rules(image.name, opened.config),
            counters=self._topic_metrics.topic(image.name),
            flusher=self._flusher,
            woken=self.woken,
        )
        self._partitions_of(image.name, image.id)[index] = partition
        return partition

    def _partitions_of(self, name: str, topic_id: Uuid) -> dict[int, Partition]:
        partitions = self._topics.get(name)
        if partitions is None:
            partitions = self._topics[name] = self._topics[topic_id] = {}
        return partitions

    # -- following the metadata ----------------------------------------------------------------

    def apply(self, delta: MetadataDelta) -> None:
        """The image has changed as `delta` says."""
        for topic in delta.deleted_topics.values():
            self._drop(topic)
        for resource_type, name in delta.changed_configs:
            if resource_type == ResourceType.TOPIC:
                self._reconfigure(name)
        for topic_id, index in delta.changed_partitions:
            partition = self._topics.get(topic_id, {}).get(index)
            if partition is not None:
                partition.follow(self._image.topics_by_id[topic_id].partitions[index])

    def reconfigure_all(self) -> None:
        """The node's own defaults have changed: every open log takes them up."""
        for key in list(self._topics):
            if isinstance(key, str):
                self._reconfigure(key)

    def _reconfigure(self, name: str) -> None:
        config = self._log_config(name)
        rules = self._rules(name, config)
        for partition in self._topics.get(name, {}).values():
            partition.reconfigure(config, rules)

    def _rules(self, name: str, config: LogConfig) -> BatchRules:
        kind = InternalTopicRules if name in INTERNAL_TOPICS else BatchRules
        return kind(config, full=self._full_validation())

    def _drop(self, topic: Topic) -> None:
        partitions = self._topics.pop(topic.name, {})
        self._topics.pop(topic.id, None)
        for partition in partitions.values():
            partition.close(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r} was deleted"
            )
        for index in range(len(topic.partitions)):
            try:
                self._logs.delete(TopicPartition(topic.name, index))
            except StorageError as e:
                log.error("files of a deleted topic stay until the next start: %s", e)
        self._topic_metrics.remove(topic.name)
