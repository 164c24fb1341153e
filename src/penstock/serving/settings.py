"""Settings of topics, brokers, groups and subscriptions to clients' metrics: the values in
force, and where each comes from.

They are changed by the active controller. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.auth.principal import Principal
from penstock.auth.types import Operation
from penstock.base.errors import ApiError, ErrorCode
from penstock.config.layers import BrokerSettings, ConfigEntry, describe_client_metrics
from penstock.metadata.config_control import (
    check_group_name,
    check_subscription_name,
    unsupported_resource,
)
from penstock.metadata.image import MetadataImage, ResourceType
from penstock.metadata.names import check_topic_name
from penstock.partitions.replica_manager import ReplicaManager
from penstock.serving.rights import Rights


class SettingService:
    def __init__(
        self,
        node_id: int,
        image: MetadataImage,
        settings: BrokerSettings,
        replicas: ReplicaManager,
        rights: Rights,
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._settings = settings
        self._replicas = replicas
        self._rights = rights

    @property
    def group_protocols(self) -> tuple[str, ...]:
        """The rebalance protocols that groups may use here."""
        return tuple(self._settings.config.group_coordinator_rebalance_protocols)

    def describe(self, principal: Principal, resource_type: int, name: str) -> list[ConfigEntry]:
        """All settings of a resource; the broker without a name has the cluster-wide dynamic
        ones.
        """
        if resource_type == ResourceType.TOPIC:
            self._rights.require_topic(principal, Operation.DESCRIBE_CONFIGS, name)
            check_topic_name(name)
            self._replicas.topic(name)
            return self._settings.describe_topic(self._image.topic_config(name))
        if resource_type == ResourceType.GROUP:
            self._rights.require_group(principal, Operation.DESCRIBE_CONFIGS, name)
            check_group_name(name)
            return self._settings.describe_group(self._image.config(resource_type, name))
        self._rights.require_cluster(principal, Operation.DESCRIBE_CONFIGS)
        if resource_type == ResourceType.CLIENT_METRICS:
            check_subscription_name(name)
            return describe_client_metrics(self._image.config(resource_type, name))
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

    def resources(self, principal: Principal) -> dict[int, Iterable[str]]:
        """What there is to describe, by type."""
        self._rights.require_cluster(principal, Operation.DESCRIBE_CONFIGS)
        return {
            ResourceType.TOPIC: self._image.topics,
            ResourceType.BROKER: map(str, self._image.brokers),
            ResourceType.CLIENT_METRICS: self._named(ResourceType.CLIENT_METRICS),
            ResourceType.GROUP: self._named(ResourceType.GROUP),
        }

    def _named(self, resource_type: int) -> list[str]:
        """What has settings, of what need not exist otherwise."""
        return [name for kind, name in self._image.configs if kind == resource_type]
