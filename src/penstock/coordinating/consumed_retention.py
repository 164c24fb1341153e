"""Deletes what all groups have consumed, of topics with `penstock.retention.consumed=all-groups`.

A pass looks at the partitions of such topics that this node leads and that have more than one
segment. The log's start moves to the first segment that the slowest group has not consumed as a
whole, as DeleteRecords moves it: followers hear of it. Nothing is deleted above the last stable
offset, of a topic without any group, or while it is not known for sure how far all groups are
(`consumed_offsets`); after `BLOCKED_ALARM_S` that is logged. Where no topic has the setting a pass
asks nobody.

Owned by the event loop's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.base.errors import ApiError, InvariantBroken, StorageError
from penstock.config.log_config import RETENTION_CONSUMED, LogConfig
from penstock.coordinating.consumed_offsets import ConsumedOffsets, NotKnown, Position, Survey
from penstock.log.retention import delete_old_segments, start_below
from penstock.metadata.image import ResourceType
from penstock.observe.logs import Alarm
from penstock.observe.metrics import Reading
from penstock.observe.table import (
    RETENTION_CONSUMED_BLOCKED_SECONDS,
    RETENTION_CONSUMED_BYTES,
    RETENTION_CONSUMED_HELD_MESSAGES,
)

if TYPE_CHECKING:
    from penstock.base.clock import Clock
    from penstock.metadata.image import MetadataImage, Topic
    from penstock.partitions.partition import Partition
    from penstock.partitions.replica_manager import ReplicaManager

log = logging.getLogger("penstock.coordinating")

BLOCKED_ALARM_S: Final = 600


class Held(NamedTuple):
    """What the slowest group of a partition keeps from being deleted."""

    topic: str
    partition: int
    group_id: str
    messages: int


class ConsumedRetention:
    def __init__(
        self,
        metadata: MetadataImage,
        replicas: ReplicaManager,
        offsets: ConsumedOffsets,
        topic_config: Callable[[str], LogConfig],
        clock: Clock,
    ) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._offsets = offsets
        self._topic_config = topic_config
        self._clock = clock
        self._alarm = Alarm(log, level=logging.WARNING)
        self._blocked_since: dict[str, int] = {}
        self._held: list[Held] = []
        self.bytes_deleted = 0

    async def run_once(self) -> None:
        """One pass."""
        wanted = {topic.name: (topic, led) for topic, led in self._wanted()}
        self._blocked_since = {n: ms for n, ms in self._blocked_since.items() if n in wanted}
        held: list[Held] = []
        survey: Survey | NotKnown | None = None
        for topic, led in wanted.values():
            try:
                if survey is None:
                    survey = await self._survey()
                if isinstance(survey, NotKnown):
                    raise survey
                held += await self._delete(survey, topic, led)
                self._blocked_since.pop(topic.name, None)
            except NotKnown as why:
                self._blocked(topic.name, str(why))
        self._held = held

    async def _survey(self) -> Survey | NotKnown:
        try:
            return await self._offsets.survey()
        except NotKnown as why:
            return why

    def _wanted(self) -> Iterator[tuple[Topic, list[Partition]]]:
        """Topics with the setting, and their partitions here from which a segment could go."""
        for (kind, name), settings in self._metadata.configs.items():
            if kind != ResourceType.TOPIC or RETENTION_CONSUMED not in settings:
                continue
            topic = self._metadata.topics.get(name)
            if topic is None or not self._topic_config(name).deletes_consumed:
                continue
            led = [p for p in map(self._led(name), range(len(topic.partitions))) if p is not None]
            if led:
                yield topic, led

    def _led(self, name: str) -> Callable[[int], Partition | None]:
        def find(index: int) -> Partition | None:
            try:
                partition = self._replicas.leader_of(name, index)
            except ApiError:
                return None  # another node leads it, or its log cannot be opened
            return partition if len(partition.log.segments) > 1 else None

        return find

    def _blocked(self, topic: str, why: str) -> None:
        now_ms = self._clock.now_ms()
        since_ms = self._blocked_since.setdefault(topic, now_ms)
        if now_ms - since_ms >= BLOCKED_ALARM_S * 1000:
            self._alarm.raised(
                topic,
                f"what all groups of {topic} have consumed is not deleted, since it is not known "
                f"how far they are: {why}",
                topic=topic,
            )

    async def _delete(self, survey: Survey, topic: Topic, led: list[Partition]) -> list[Held]:
        """Move the starts of the logs; what holds them back."""
        epochs = {partition: partition.leader_epoch for partition in led}
        found = await self._offsets.slowest(survey, topic, [p.index for p in led])
        held = []
        for partition, epoch in epochs.items():
            position = found.get(partition.index)
            still = self._replicas.opened(topic.name, partition.index) is partition
            # Groups are not asked again for another leadership: the log may be another one.
            if position is None or not still or partition.leader_epoch != epoch:
                continue
            held.append(_held(partition, position))
            try:
                self._move_start(partition, position.offset)
            except StorageError as e:
                log.error("what is consumed of %r cannot be deleted: %s", partition, e)
            except InvariantBroken as e:
                partition.stop(str(e))
        return held

    def _move_start(self, partition: Partition, consumed: int) -> None:
        bound = min(consumed, partition.high_watermark, partition.last_stable_offset)
        start, size = start_below(partition.log, bound)
        if start > partition.log.log_start_offset:
            partition.delete_records(start)
            delete_old_segments(partition.log, self._clock.now_ms())
            self.bytes_deleted += size

    # -- metrics -------------------------------------------------------------------------------

    def readings(self) -> Iterator[Reading]:
        now_ms = self._clock.now_ms()
        yield RETENTION_CONSUMED_BYTES.one(self.bytes_deleted)
        held, blocked = RETENTION_CONSUMED_HELD_MESSAGES, RETENTION_CONSUMED_BLOCKED_SECONDS
        yield Reading(
            held,
            [held.sample(h.messages, h.topic, str(h.partition), h.group_id) for h in self._held],
        )
        since = self._blocked_since.items()
        yield Reading(blocked, [blocked.sample((now_ms - ms) / 1000, name) for name, ms in since])


def _held(partition: Partition, position: Position) -> Held:
    behind = max(partition.high_watermark - position.offset, 0)
    return Held(partition.topic, partition.index, position.group_id, behind)
