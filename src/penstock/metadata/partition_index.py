"""Which partitions a broker holds, and which want attention: what a decision would otherwise scan
every partition for.

Belongs to the controller's image and follows it change by change; built once, when the controller
becomes active. Partitions are named by topic id and index. Everything is iterated in an order that
depends on the metadata alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from penstock.base.ids import Uuid
from penstock.metadata.image import MetadataImage, Partition, Topic
from penstock.metadata.placement import Load
from penstock.metadata.records import NO_LEADER

PartitionKey: TypeAlias = tuple[Uuid, int]


@dataclass(frozen=True, slots=True)
class Place:
    """A partition with where it is."""

    topic: Topic
    index: int
    partition: Partition


class PartitionIndex:
    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._by_broker: dict[int, dict[Uuid, set[int]]] = {}
        self.leaderless: dict[PartitionKey, None] = {}
        self.not_preferred: dict[PartitionKey, None] = {}
        """Partitions whose first replica does not lead."""
        self.reassigning: dict[PartitionKey, None] = {}
        self.eligible: dict[PartitionKey, None] = {}
        """Partitions with eligible leader replicas, or with a last known leader."""
        self.preferring: Counter[int] = Counter()
        """How many partitions have a broker as their first replica."""
        self.replicas: Counter[int] = Counter()
        self.leading: Counter[int] = Counter()
        for topic in image.topics.values():
            self._add(topic)

    def _add(self, topic: Topic) -> None:
        """All partitions of a topic at once: a fail-over waits for the whole index."""
        held: defaultdict[int, set[int]] = defaultdict(set)
        for index, partition in enumerate(topic.partitions):
            for broker_id in partition.replicas:
                held[broker_id].add(index)
            if partition.leader != partition.replicas[0]:
                self.not_preferred[topic.id, index] = None
                if partition.leader == NO_LEADER:
                    self.leaderless[topic.id, index] = None
            if partition.adding or partition.removing:
                self.reassigning[topic.id, index] = None
            if partition.elr or partition.last_known_elr:
                self.eligible[topic.id, index] = None
        for broker_id, indexes in held.items():
            self._by_broker.setdefault(broker_id, {})[topic.id] = indexes
            self.replicas[broker_id] += len(indexes)
        self.preferring.update([partition.replicas[0] for partition in topic.partitions])
        self.leading.update([partition.leader for partition in topic.partitions])

    def changed(self, key: PartitionKey, old: Partition | None, new: Partition | None) -> None:
        """A partition was made (`old` is None), changed, or deleted (`new` is None)."""
        before = () if old is None else old.replicas
        after = () if new is None else new.replicas
        if before != after:
            self._moved(key, before, after)
        if old is not None:
            self.leading[old.leader] -= 1
        if new is not None:
            self.leading[new.leader] += 1
        _mark(self.leaderless, key, new is not None and new.leader == NO_LEADER)
        _mark(self.not_preferred, key, new is not None and new.leader != new.replicas[0])
        _mark(self.reassigning, key, new is not None and bool(new.adding or new.removing))
        _mark(self.eligible, key, new is not None and bool(new.elr or new.last_known_elr))

    def _moved(self, key: PartitionKey, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        topic_id, index = key
        for broker_id in before:
            topics = self._by_broker[broker_id]
            topics[topic_id].discard(index)
            if not topics[topic_id]:
                del topics[topic_id]
            self.replicas[broker_id] -= 1
        for broker_id in after:
            topics = self._by_broker.setdefault(broker_id, {})
            topics.setdefault(topic_id, set()).add(index)
            self.replicas[broker_id] += 1
        if before:
            self.preferring[before[0]] -= 1
        if after:
            self.preferring[after[0]] += 1

    def held_by(self, broker_id: int) -> Iterator[Place]:
        """The partitions that have a replica on the broker."""
        for topic_id, indexes in self._by_broker.get(broker_id, {}).items():
            topic = self._image.topics_by_id[topic_id]
            for index in sorted(indexes):
                yield Place(topic, index, topic.partitions[index])

    def load(self) -> Load:
        """What the brokers hold, for a decision to add to."""
        return Load(self.preferring.copy(), self.replicas.copy())

    def at(self, key: PartitionKey) -> Place:
        topic = self._image.topics_by_id[key[0]]
        return Place(topic, key[1], topic.partitions[key[1]])


def _mark(keys: dict[PartitionKey, None], key: PartitionKey, marked: bool) -> None:
    if marked:
        keys[key] = None
    else:
        keys.pop(key, None)
