"""The replicas that this node holds, and the way from a topic's name or id to one of them.

Duty: find the `Partition` of a topic and an index, or the error why there is none; follow the
metadata: the logs of deleted topics and of replicas that were moved to other nodes are deleted,
changed settings are applied to the logs, new leader epochs to the replicas.

The only replica of a partition is opened when it is first used. Where there are several, a follower
has to fetch and a leader to watch its followers, so these are opened as soon as the metadata is
known (`begin`), one by one (`open_next`), while requests are served in between.

Replicas of a deleted topic are not found any more from that moment on. If they are many, most are
closed and their directories renamed a little later, in the same way (`leave_next`); one that has
not left yet when its name is used again does so then. Owned by the event loop's thread.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol

from penstock.base.errors import (
    ApiError,
    ErrorCode,
    InvariantBroken,
    PenstockError,
    StorageError,
    invariant,
)
from penstock.base.ids import TopicKey, TopicPartition, Uuid
from penstock.config.log_config import LogConfig
from penstock.log.manager import LogManager
from penstock.metadata import image as metadata
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage, ResourceType, Topic
from penstock.metadata.names import INTERNAL_TOPICS
from penstock.observe.standard import TopicMetrics
from penstock.partitions.batch_validation import BatchRules, InternalTopicRules
from penstock.partitions.high_watermarks import HighWatermarks
from penstock.partitions.leadership import Role
from penstock.partitions.partition import Partition
from penstock.partitions.replica_environment import ReplicaEnvironment
from penstock.replica.leader import IsrChange

log = logging.getLogger("penstock.partitions")

CHECKS_PER_STEP: Final = 256
"""Replicas per step of `check_replicas`: about a millisecond."""
LEAVES_AT_ONCE_MAX = 20
"""Replicas of deleted topics that leave immediately: a millisecond or two."""


class Stopped(NamedTuple):
    """A replica that was stopped, and why."""

    topic_partition: TopicPartition
    reason: str


class ReplicaListener(Protocol):
    """Replication, as the manager notifies it."""

    def on_leadership(self, partition: Partition) -> None:
        """A replica was opened, or its leader epoch is another one."""

    def on_gone(self, partition: Partition) -> None:
        """A replica is no longer this node's."""

    def on_stopped(self, partition: Partition) -> None:
        """A replica was stopped; if it leads, another broker should."""

    def on_log_failed(self, partition: Partition) -> None:
        """A replica refuses writes for good; if it leads, another broker should."""

    def on_to_open(self) -> None:
        """There is something for `open_next` to do."""

    def on_to_leave(self) -> None:
        """There is something for `leave_next` to do."""

    def on_checks(self, steps: Iterator[None]) -> None:
        """Replicas are to be checked: `steps` does it, and lets requests be served in between."""


class ReplicaManager:
    def __init__(
        self,
        image: MetadataImage,
        logs: LogManager,
        env: ReplicaEnvironment,
        topic_metrics: TopicMetrics,
        log_config: Callable[[str], LogConfig],
        validation: Callable[[], str],
    ) -> None:
        """`log_config` gives the settings of the topic with that name, `validation` the present
        `penstock.record.validation`.
        """
        self._node_id = env.node_id
        self._image = image
        self._logs = logs
        self._env = env
        self._topic_metrics = topic_metrics
        self._log_config = log_config
        self._validation = validation
        self._high_watermarks = HighWatermarks(logs.data_dir)
        # Each topic's open replicas, the same dict under its name and under its id; those that
        # lead stand in both.
        self._led: dict[TopicKey, dict[int, Partition]] = {}
        self._hosted: dict[TopicKey, dict[int, Partition]] = {}
        # Emptied from the front, for which a plain dict takes longer with each that went before.
        self._to_open: OrderedDict[tuple[Uuid, int], None] = OrderedDict()
        self._refused: dict[tuple[Uuid, int], None] = {}
        # Of deleted topics: what is still to be closed (if it was open) and to be deleted.
        self._leaving: OrderedDict[TopicPartition, Partition | None] = OrderedDict()
        self._started = False
        self.stopped: dict[tuple[Uuid, int], Stopped] = {}
        """Replicas that broke an invariant; they are not opened again in this run."""
        env.on_stopped = self._on_stopped
        env.on_log_failed = self._on_log_failed
        logs.on_broken = self._on_broken
        self._listener: ReplicaListener | None = None

    # -- finding -------------------------------------------------------------------------------

    def leader_of(self, topic: TopicKey, index: int) -> Partition:
        """The partition, if this node leads it; otherwise the ApiError for the client."""
        partitions = self._led.get(topic)
        if partitions is not None:
            partition = partitions.get(index)
            if partition is not None:
                return partition
        return self._open_leader(topic, index)

    def replica_of(self, topic: TopicKey, index: int) -> Partition:
        """The partition, if this node leads or follows it."""
        partitions = self._hosted.get(topic)
        if partitions is not None:
            partition = partitions.get(index)
            if partition is not None:
                return partition
        return self._open_leader(topic, index)

    def opened(self, topic: str, index: int) -> Partition | None:
        """The partition, if this node leads it and it has been used since the start."""
        partitions = self._led.get(topic)
        return None if partitions is None else partitions.get(index)

    def hosted(self, tp: TopicPartition) -> Partition | None:
        """The open replica, whatever its role."""
        partitions = self._hosted.get(tp.topic)
        return None if partitions is None else partitions.get(tp.partition)

    def open_partitions(self) -> Iterator[Partition]:
        """All open replicas, whatever their role."""
        for key, partitions in self._hosted.items():
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

    def registration(self, topic: TopicKey, index: int) -> tuple[Topic, metadata.Partition]:
        """A partition in the metadata; ApiError if it does not exist."""
        image = self.topic(topic)
        if not 0 <= index < len(image.partitions):
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {image.name!r} has no partition {index}",
            )
        return image, image.partitions[index]

    def registered(self, partition: Partition) -> metadata.Partition | None:
        """The partition of a replica in the metadata; None when it is gone."""
        return self._image.partition(partition.topic_id, partition.index)

    # -- opening -------------------------------------------------------------------------------

    def _open_leader(self, topic: TopicKey, index: int) -> Partition:
        image, registration = self.registration(topic, index)
        # Before the start is done, the metadata of this node is about its last run.
        if registration.leader != self._node_id or not self._started:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        stopped = self.stopped.get((image.id, index))
        if stopped is not None:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the replica was stopped: {stopped.reason}"
            )
        try:
            return self._open(image, index, registration)
        except StorageError as e:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(e)) from e

    def _open(self, topic: Topic, index: int, registration: metadata.Partition) -> Partition:
        tp = TopicPartition(topic.name, index)
        if tp in self._leaving:
            self._end(tp, self._leaving.pop(tp))
        if self._started and self._logs.topic_id_of(tp) not in (None, topic.id):
            log.info("the log %s of a deleted topic with the same name is deleted", tp)
            self._delete(tp)
        opened = self._logs.get_or_create(tp, topic.id)
        partition = Partition(
            topic.name,
            topic.id,
            index,
            opened,
            registration=registration,
            rules=self._rules(topic.name, opened.config),
            counters=self._topic_metrics.topic(topic.name),
            env=self._env,
            high_watermark=self._high_watermarks.get(tp),
        )
        self._to_open.pop((topic.id, index), None)
        self._refused.pop((topic.id, index), None)
        hosted = _both(self._hosted, topic)
        invariant(index not in hosted, f"{tp} is open already")
        hosted[index] = partition
        self._place(partition)
        return partition

    def _place(self, partition: Partition) -> None:
        """Register a replica under its role, which may have changed."""
        if partition.role is Role.LEADER:
            led = self._led.get(partition.topic)
            if led is None:
                led = self._led[partition.topic] = self._led[partition.topic_id] = {}
            led[partition.index] = partition
        else:
            self._led.get(partition.topic, {}).pop(partition.index, None)
        if self._listener is not None:
            self._listener.on_leadership(partition)

    def begin(
        self, listener: ReplicaListener, submit_isr: Callable[[Partition, IsrChange], None]
    ) -> None:
        """The metadata has caught up: deal with what was moved away, and queue what is to open."""
        self._listener = listener
        self._env.submit_isr = submit_isr
        self._started = True
        for partition in self.open_partitions():
            listener.on_leadership(partition)
        stored = self._logs.partitions()
        for topic in self._image.topics.values():
            for index, registration in enumerate(topic.partitions):
                if self._node_id in registration.replicas:
                    self._want_open(topic, index, registration)
                elif (tp := TopicPartition(topic.name, index)) in stored:
                    log.info("the log %s was moved to other nodes while this one was away", tp)
                    self._delete(tp)

    def _want_open(self, topic: Topic, index: int, registration: metadata.Partition) -> None:
        key = (topic.id, index)
        if (
            len(registration.replicas) > 1
            and index not in self._hosted.get(topic.id, {})
            and key not in self.stopped
        ):
            self._to_open[key] = None
            self._notify_to_open()

    def open_next(self) -> bool:
        """Open one of the replicas that wait for it; whether more wait."""
        if not self._to_open:
            return False
        (topic_id, index), _ = self._to_open.popitem(last=False)
        registration = self._image.partition(topic_id, index)
        if registration is not None and self._node_id in registration.replicas:
            topic = self._image.topics_by_id[topic_id]
            try:
                self._open(topic, index, registration)
            except StorageError as e:
                log.error("replica %s-%d cannot be opened yet: %s", topic.name, index, e)
                self._refused[topic_id, index] = None
        return bool(self._to_open)

    # -- following the metadata ----------------------------------------------------------------

    def apply(self, delta: MetadataDelta) -> None:
        """`delta` was applied to the image."""
        for topic in delta.deleted_topics.values():
            self._drop(topic)
        if self._leaving:
            self._leave_soon()
        for resource_type, name in sorted(delta.changed_configs):
            if resource_type == ResourceType.TOPIC:
                self._reconfigure(name)
        for topic_id, index in sorted(delta.changed_partitions):
            self._follow(topic_id, index)
        if delta.changed_brokers:
            self._check_soon()

    def _follow(self, topic_id: Uuid, index: int) -> None:
        topic = self._image.topics_by_id[topic_id]
        registration = topic.partitions[index]
        partition = self._hosted.get(topic_id, {}).get(index)
        if self._node_id not in registration.replicas:
            if partition is not None or self._started:
                self._leave(topic, index)
        elif partition is None:
            if self._started:
                self._want_open(topic, index, registration)
        else:
            try:
                if partition.leadership.follow(registration):
                    self._place(partition)
            except PenstockError as e:
                partition.stop(f"it cannot follow the metadata: {e}")

    def _leave(self, topic: Topic, index: int) -> None:
        """The replica was moved to another node."""
        self._to_open.pop((topic.id, index), None)
        self.stopped.pop((topic.id, index), None)
        partition = self._hosted.get(topic.id, {}).get(index)
        if partition is not None:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            self._close(partition, code, "the replica was moved to another broker")
        self._delete(TopicPartition(topic.name, index))

    def _close(self, partition: Partition, code: ErrorCode, message: str) -> None:
        self._forget(partition)
        partition.close(code, message)
        if self._listener is not None:
            self._listener.on_gone(partition)

    def _on_stopped(self, partition: Partition) -> None:
        self._forget(partition)
        tp = TopicPartition(partition.topic, partition.index)
        stopped = Stopped(tp, partition.stopped or "")
        self.stopped[partition.topic_id, partition.index] = stopped
        if self._listener is not None:
            self._listener.on_stopped(partition)

    def _on_log_failed(self, partition: Partition) -> None:
        if self._listener is not None:
            self._listener.on_log_failed(partition)

    def _on_broken(self, tp: TopicPartition, reason: str) -> None:
        """A log has broken an invariant during housekeeping."""
        partition = self.hosted(tp)
        if partition is None:
            self._logs.abandon(tp, reason)
        else:
            partition.stop(reason)

    def _forget(self, partition: Partition) -> None:
        """Take the replica out of the tables."""
        self._led.get(partition.topic_id, {}).pop(partition.index, None)
        self._hosted.get(partition.topic_id, {}).pop(partition.index, None)

    def reconfigure_all(self) -> None:
        """The node's own defaults have changed: apply them to every open log."""
        for key in list(self._hosted):
            if isinstance(key, str):
                self._reconfigure(key)

    def _reconfigure(self, name: str) -> None:
        config = self._log_config(name)
        rules = self._rules(name, config)
        for partition in self._hosted.get(name, {}).values():
            partition.reconfigure(config, rules)

    def _rules(self, name: str, config: LogConfig) -> BatchRules:
        kind = InternalTopicRules if name in INTERNAL_TOPICS else BatchRules
        validation = self._validation()
        return kind(config, full=validation == "full", unpack=validation != "header")

    def _drop(self, topic: Topic) -> None:
        """The topic was deleted: its replicas are found no more, and leave."""
        hosted = self._hosted.get(topic.id, {})
        for partitions in (self._hosted, self._led):
            partitions.pop(topic.name, None)
            partitions.pop(topic.id, None)
        for index in range(len(topic.partitions)):
            self._to_open.pop((topic.id, index), None)
            self.stopped.pop((topic.id, index), None)
            partition, tp = hosted.get(index), TopicPartition(topic.name, index)
            # One that waits already is of an earlier topic: this one's was never opened.
            if partition is not None or tp not in self._leaving:
                self._leaving[tp] = partition
        self._topic_metrics.remove(topic.name)

    def _leave_soon(self) -> None:
        """Let the first go now, the others in a moment."""
        left = LEAVES_AT_ONCE_MAX
        while left and self.leave_next():
            left -= self._listener is not None  # who else would do the others?
        if self._leaving and self._listener is not None:
            self._listener.on_to_leave()

    def leave_next(self) -> bool:
        """Close and delete one of the replicas whose topic was deleted; whether more wait."""
        if self._leaving:
            self._end(*self._leaving.popitem(last=False))
        return bool(self._leaving)

    def _end(self, tp: TopicPartition, partition: Partition | None) -> None:
        if partition is not None:
            message = f"topic {tp.topic!r} was deleted"
            self._close(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        self._delete(tp)

    def _notify_to_open(self) -> None:
        if self._listener is not None:
            self._listener.on_to_open()

    def _delete(self, tp: TopicPartition) -> None:
        if not self._started:
            return  # the metadata is still being loaded: it may be outdated
        self._high_watermarks.forget(tp)
        try:
            self._logs.delete(tp)
        except StorageError as e:
            log.error("files of a replica that is gone stay until the next start: %s", e)

    # -- duties --------------------------------------------------------------------------------

    def checkpoint_task(self) -> Callable[[], None]:
        """Note the high watermarks; what is returned writes them, in any thread."""
        moved = [self.hosted(tp) for tp in self._logs.moved_watermarks()]
        return self._high_watermarks.checkpoint_task([p for p in moved if p is not None])

    def _check_soon(self) -> None:
        """Brokers have come or gone: check the first replicas now, the others soon."""
        steps = self._steps()
        if next(steps, self) is None and self._listener is not None:
            self._listener.on_checks(steps)
        else:
            for _ in steps:
                pass

    def check_replicas(self) -> Iterator[None]:
        """From time to time: drop in-sync replicas that have fallen behind, and try again to open
        what the disk refused. In steps, between which requests can be served.
        """
        if self._refused:
            self._to_open |= self._refused
            self._refused.clear()
            self._notify_to_open()
        return self._steps()

    def _steps(self) -> Iterator[None]:
        for number, partition in enumerate(list(self.open_partitions()), 1):
            if self.hosted(partition.log.topic_partition) is partition:
                try:
                    partition.leadership.check()
                except InvariantBroken as e:
                    partition.stop(str(e))
            if number % CHECKS_PER_STEP == 0:
                yield


def _both(topics: dict[TopicKey, dict[int, Partition]], topic: Topic) -> dict[int, Partition]:
    """The partitions of a topic, found by its name and its id."""
    partitions = topics.get(topic.name)
    if partitions is None:
        partitions = topics[topic.name] = topics[topic.id] = {}
    return partitions
