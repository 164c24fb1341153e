"""What a run of applied records changed, for listeners that must act on it (logs to open, to
delete, ...).

A delta is filled while an image applies records; it names what changed, and the image says how it
is now. Deleted topics are kept whole, as the image has them no longer. A topic that was created
and deleted in the same run is in neither place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from penstock.auth.types import Acl
from penstock.base.ids import Uuid

if TYPE_CHECKING:
    from penstock.metadata.image import Topic

ScramKey: TypeAlias = tuple[int, str]
"""(mechanism as the protocol numbers it, user name)."""
QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""(type, name) of each part, in the order of the types; None is the default of that type."""


@dataclass(slots=True)
class SecurityDelta:
    """An ACL that was created and removed in the same run is in neither place. An ACL never
    changes.
    """

    acls_added: dict[Uuid, Acl] = field(default_factory=dict)
    acls_removed: dict[Uuid, Acl] = field(default_factory=dict)
    scram: set[ScramKey] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)
    """By id."""
    quotas: set[QuotaEntity] = field(default_factory=set)
    roles: set[str] = field(default_factory=set)
    """By name: made, removed, or with other members."""

    def __bool__(self) -> bool:
        return bool(
            self.acls_added
            or self.acls_removed
            or self.scram
            or self.tokens
            or self.quotas
            or self.roles
        )


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
    security: SecurityDelta = field(default_factory=SecurityDelta)

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
            or self.security
        )
