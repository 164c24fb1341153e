"""What a run of applied records changed, for listeners that must act on it (logs to open, to
delete, ...).

A delta is filled while an image applies records; it names what changed, and the image says how it
is now. Deleted topics are kept whole, as the image has them no longer. A topic that was created
and deleted in the same run is in neither place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.base.ids import Uuid

if TYPE_CHECKING:
    from penstock.metadata.image import Topic


@dataclass(slots=True)
class MetadataDelta:
    created_topics: dict[Uuid, Topic] = field(default_factory=dict)
    deleted_topics: dict[Uuid, Topic] = field(default_factory=dict)
    changed_partitions: set[tuple[Uuid, int]] = field(default_factory=set)
    """Partitions that are new or changed, those of created topics among them."""
    changed_configs: set[tuple[int, str]] = field(default_factory=set)
    """(resource type, resource name)."""
    changed_brokers: set[int] = field(default_factory=set)
    features_changed: bool = False

    def topic_created(self, topic: Topic) -> None:
        self.created_topics[topic.id] = topic

    def topic_deleted(self, topic: Topic) -> None:
        for index in range(len(topic.partitions)):
            self.changed_partitions.discard((topic.id, index))
        if self.created_topics.pop(topic.id, None) is None:
            self.deleted_topics[topic.id] = topic

    def __bool__(self) -> bool:
        return bool(
            self.created_topics
            or self.deleted_topics
            or self.changed_partitions
            or self.changed_configs
            or self.changed_brokers
            or self.features_changed
        )
