"""The cluster's topics as the coordinators see them: the metadata image behind a small interface.

`ImageTopics` reads the committed image at each call, so its answers change when the image does; the
driver calls `topics_changed` with the names that changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from penstock.base.ids import Uuid
from penstock.metadata.image import MetadataImage


class TopicsView(Protocol):
    def partition_count(self, name: str) -> int | None:
        """How many partitions topic `name` has; None if there is no such topic."""

    def topic_id(self, name: str) -> Uuid | None:
        """The id of topic `name`; None if there is no such topic."""

    def name_of(self, topic_id: Uuid) -> str | None:
        """The name of the topic with `topic_id`; None if there is no such topic."""

    def racks(self, name: str, partition: int) -> frozenset[str]:
        """The racks of the brokers that hold a replica of the partition."""

    def all_names(self) -> Iterable[str]:
        """The names of all topics."""


class ImageTopics:
    """A `TopicsView` of a metadata image, which the caller keeps up to date."""

    __slots__ = ("_image",)

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def partition_count(self, name: str) -> int | None:
        topic = self._image.topics.get(name)
        return None if topic is None else len(topic.partitions)

    def topic_id(self, name: str) -> Uuid | None:
        topic = self._image.topics.get(name)
        return None if topic is None else topic.id

    def name_of(self, topic_id: Uuid) -> str | None:
        topic = self._image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def racks(self, name: str, partition: int) -> frozenset[str]:
        topic = self._image.topics.get(name)
        if topic is None or not 0 <= partition < len(topic.partitions):
            return frozenset()
        brokers = self._image.brokers
        found = (brokers.get(id_) for id_ in topic.partitions[partition].replicas)
        return frozenset(b.rack for b in found if b is not None and b.rack is not None)

    def all_names(self) -> Iterable[str]:
        return self._image.topics
