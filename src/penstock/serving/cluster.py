"""The cluster as clients see it, and the way to its active controller.

Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from penstock.auth.principal import Principal
from penstock.auth.types import CLUSTER_NAME, Operation, ResourceType
from penstock.base.results import LeaderEndpoint
from penstock.controlling.active_controller import Link
from penstock.controlling.controller_access import ControllerAccess
from penstock.controlling.suspicions import Suspicions
from penstock.metadata.features import (
    GROUP_VERSION,
    KRAFT_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
    SUPPORTED_FEATURES,
)
from penstock.metadata.image import MetadataImage
from penstock.serving.leader_hints import LeaderHints
from penstock.serving.rights import Rights
from penstock.wire.messages.describe_quorum import DescribeQuorumRequest
from penstock.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from penstock.wire.schema import Message

TIMEOUT_MS = 30_000
"""How long the controller is tried, where a request has no time-out of its own."""


class NodeAddress(NamedTuple):
    """A broker as the clients of one listener reach it."""

    id: int
    host: str
    port: int
    rack: str | None
    fenced: bool


class Feature(NamedTuple):
    """A feature this node supports, and the level the cluster has finalised (0 for none)."""

    name: str
    min_supported: int
    max_supported: int
    finalized: int


class ClusterService:
    def __init__(
        self,
        node_id: int,
        image: MetadataImage,
        controller: ControllerAccess,
        suspicions: Suspicions,
        hints: LeaderHints,
        rights: Rights,
    ) -> None:
        self.id = ""
        """Empty until the node has found or founded its cluster."""
        self._node_id = node_id
        self._image = image
        self._controller = controller
        self._suspicions = suspicions
        self._hints = hints
        self._rights = rights

    # -- brokers -------------------------------------------------------------------------------

    def nodes(self, principal: Principal, listener: str) -> list[NodeAddress]:
        """All registered brokers that are on the listener."""
        found = []
        for broker in self._image.brokers.values():
            endpoint = broker.endpoint(listener)
            if endpoint is not None:
                found.append(
                    NodeAddress(broker.id, endpoint.host, endpoint.port, broker.rack, broker.fenced)
                )
        return found

    def live_nodes(self, principal: Principal, listener: str) -> list[NodeAddress]:
        """The brokers that are alive, and those that were a moment ago."""
        left = self._suspicions.has_just_left
        return [n for n in self.nodes(principal, listener) if not n.fenced or left(n.id)]

    def endpoints(
        self, principal: Principal, broker_ids: Iterable[int], listener: str
    ) -> list[LeaderEndpoint]:
        """Where clients of `listener` reach these brokers, as far as they are alive."""
        return self._hints.endpoints(broker_ids, listener)

    def offline(self, principal: Principal, replicas: Iterable[int]) -> list[int]:
        brokers = self._image.brokers
        return [id_ for id_ in replicas if id_ not in brokers or brokers[id_].fenced]

    @property
    def is_settled(self) -> bool:
        """Whether no broker is suspected to have died: if one is, leaders are about to change."""
        return not self._suspicions

    async def settle(self, principal: Principal) -> None:
        """Wait until no broker is suspected."""
        await self._suspicions.settle()

    def operations(self, principal: Principal) -> int:
        """What the principal may do with the cluster, as the bits of the protocol; 0 if it may not
        know.
        """
        if not self._rights.cluster(principal, Operation.DESCRIBE):
            return 0
        return self._rights.operations(principal, ResourceType.CLUSTER, CLUSTER_NAME)

    # -- features ------------------------------------------------------------------------------

    def features(self, principal: Principal) -> list[Feature]:
        # The quorum finalises its own feature, from the start.
        finalized = {KRAFT_VERSION: SUPPORTED_FEATURES[KRAFT_VERSION].highest}
        finalized |= self._image.features
        return [
            Feature(name, levels.lowest, levels.highest, finalized.get(name, 0))
            for name, levels in SUPPORTED_FEATURES.items()
        ]

    @property
    def has_consumer_protocol(self) -> bool:
        """Whether the finalised level of group.version has groups of the consumer protocol."""
        return self._image.features.get(GROUP_VERSION) != 0

    @property
    def has_share_groups(self) -> bool:
        """Whether the finalised level of share.version has share groups."""
        return self._image.features.get(SHARE_VERSION, 0) > 0

    @property
    def has_streams_groups(self) -> bool:
        """Whether the finalised level of streams.version has streams groups."""
        return self._image.features.get(STREAMS_VERSION, 0) > 0

    def features_epoch(self, principal: Principal) -> int:
        """Grows whenever the finalised features may have changed."""
        return self._controller.committed_offset

    # -- the controller ------------------------------------------------------------------------

    def controller_id(self, principal: Principal, listener: str) -> int:
        """The node that clients of `listener` send cluster changes to: any live one that they reach
        will do, the active controller best.
        """
        active = self._image.brokers.get(self._controller.id)
        if active is None or active.fenced or active.endpoint(listener) is None:
            return self._node_id
        return active.id

    @property
    def is_controller(self) -> bool:
        """Whether this node is the active controller."""
        return self._controller.is_active

    async def ask(
        self,
        principal: Principal,
        request: Message,
        version: int,
        *,
        forward: bool,
        client_id: str | None = None,
    ) -> Any:
        """The active controller's response, in the client's version; `ApiError` if it refuses.

        It is tried until the request's own time-out is over, then the error is NOT_CONTROLLER.
        Without `forward` only this node is asked.
        """
        if forward and not _only_asks(request):
            self._rights.require_change(principal)
        timeout_s = getattr(request, "timeout_ms", TIMEOUT_MS) / 1000
        return await self._controller.ask(
            request,
            version=version,
            principal=principal,
            client_id=client_id,
            timeout_s=timeout_s,
            attempt_s=timeout_s,
            forward=forward,
        )

    async def decide(self, principal: Principal, request: Message, link: Link) -> Any:
        """The response of this node's controller to a broker's own request, received over `link`;
        `ApiError` NOT_CONTROLLER if the active controller is elsewhere.
        """
        return await self._controller.ask(request, principal=principal, link=link, forward=False)


def _only_asks(request: Message) -> bool:
    return isinstance(request, DescribeQuorumRequest | ListPartitionReassignmentsRequest)
