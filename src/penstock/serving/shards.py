"""The way to a coordinator's shards, by the key that each of them keeps.

Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from penstock.coordinating.coordinators import ShardedCoordinator
from penstock.wire.schema import Message


class ShardService:
    def __init__(self, coordinator: ShardedCoordinator[Any]) -> None:
        self._coordinator = coordinator

    def submit(
        self,
        principal: str,
        key: str,
        request: Message,
        version: int,
        client_id: str,
        client_host: str,
    ) -> Message | Awaitable[Message]:
        """Pass a request about one key to its shard: the answer, or a future of it."""
        return self._coordinator.submit(key, request, version, client_id, client_host)

    def everywhere(
        self, principal: str, request: Message, version: int, client_id: str, client_host: str
    ) -> list[Message | Awaitable[Message]]:
        """Pass a request about all keys to every shard of this node."""
        return self._coordinator.everywhere(request, version, client_id, client_host)

    async def coordinator_of(self, principal: str, key: str) -> int:
        """The node that coordinates `key`; ApiError if none does. Creates the internal topic on
        first need.
        """
        return await self._coordinator.coordinator_of(key)

    def partition_of(self, principal: str, key: str) -> int | None:
        """The partition of the internal topic that keeps `key`; None while there is none."""
        return self._coordinator.partition_of(key)
