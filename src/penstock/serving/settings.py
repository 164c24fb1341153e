"""Settings of topics, brokers and groups: the values in force, and where each comes from.

They are changed by the active controller. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.base.errors import ApiError, ErrorCode
from penstock.config.layers import BrokerSettings, ConfigEntry
from penstock.metadata.config_control import check_group_name, unsupported_resource
from penstock.metadata.image import MetadataImage, ResourceType
from penstock.metadata.names import check_topic_name
from penstock.partitions.replica_manager import ReplicaManager


class SettingService:
    def __init__(
        self, node_id: int, image: MetadataImage, settings: BrokerSettings, replicas: ReplicaManager
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._settings = settings
        self._replicas = replicas

    @property
    def group_protocols(self) -> tuple[str, ...]:
        """The rebalance protocols that groups may use here."""
        return tuple(self._settings.config.group_coordinator_rebalance_protocols)

    def describe(self, principal: str, resource_type: int, name: str) -> list[ConfigEntry]:
        """All settings of a resource; the broker without a name has the cluster-wide dynamic
        ones.
        """
        if resource_type == ResourceType.TOPIC:
            check_topic_name(name)
            self._replicas.topic(name)
            return self._settings.describe_topic(self._image.topic_config(name))
        if resource_type == ResourceType.GROUP:
            check_group_name(name)
            return self._settings.describe_group(self._image.config(resource_type, name))
        if resource_type != ResourceType.BROKER:
            raise unsupported_resource(resource_type)
        if not name:
            return self._settings.describe_cluster()
        if name != str(self._node_id):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{name!r} is not the broker that was asked: ask it itself, or ask this one as "
                f"{self._node_id}",
            )
        return self._settings.describe_broker()

    def resources(self, principal: str) -> dict[int, Iterable[str]]:
        """What there is to describe, by type."""
        return {
            ResourceType.TOPIC: self._image.topics,
            ResourceType.BROKER: map(str, self._image.brokers),
            ResourceType.GROUP: [
                name for kind, name in self._image.configs if kind == ResourceType.GROUP
            ],
        }
