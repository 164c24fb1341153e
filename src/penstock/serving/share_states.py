"""States of share-partitions: nodes ask the share coordinator of this node, which keeps them.

Only a node may ask: with rights active that takes one to act for the cluster. Requests of this node
itself do not come this way (`coordinating.share_persister`). Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from penstock.auth.principal import Principal
from penstock.auth.types import Operation
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import parse_uuid
from penstock.coordinating.share_coordinator import ShareCoordinator
from penstock.coordinator.share_state import refuse
from penstock.serving.rights import Rights
from penstock.share.types import ShareKey
from penstock.wire.schema import Message

_KEY_PARTS: Final = 3


class ShareStateService:
    def __init__(self, coordinator: ShareCoordinator, rights: Rights) -> None:
        self._coordinator = coordinator
        self._rights = rights

    async def coordinator_of(self, principal: Principal, key: str) -> int:
        """The node that keeps the share-partition `group:topic id:partition`; ApiError if none
        does. Creates the internal topic on first need.
        """
        self._rights.require_cluster(principal, Operation.CLUSTER_ACTION)
        return await self._coordinator.coordinator_of(share_key(key).text)

    def serve(
        self, principal: Principal, request: Message, version: int
    ) -> Message | Awaitable[Message]:
        """The answer to one of the five requests about states, or a future of it."""
        if not self._rights.cluster(principal, Operation.CLUSTER_ACTION):
            return refuse(request, version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return self._coordinator.serve(request, version)


def share_key(text: str) -> ShareKey:
    """The share-partition behind Kafka's form of it; the group's id may have colons of its own."""
    parts = text.rsplit(":", _KEY_PARTS - 1)
    try:
        group_id, topic_id, partition = parts
        if not group_id.strip():
            raise ValueError("it names no group")
        return ShareKey(group_id, parse_uuid(topic_id), int(partition))
    except ValueError as e:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"the key has to be group:topic id:partition: {e}"
        ) from e
