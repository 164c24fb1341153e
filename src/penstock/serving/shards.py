"""The way to a coordinator's shards, by the key that each of them keeps.

Each kind of coordinator says who may go it (`groups`, `transactions`). Owned by the event loop's
thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import Any

from penstock.auth.principal import Principal
from penstock.coordinating.coordinators import ShardedCoordinator
from penstock.wire.schema import Message


class ShardService(ABC):
    def __init__(self, coordinator: ShardedCoordinator[Any]) -> None:
        self._coordinator = coordinator

    @abstractmethod
    def submit(
        self,
        principal: Principal,
        key: str,
        request: Message,
        version: int,
        client_id: str,
        client_host: str,
    ) -> Message | Awaitable[Message]:
        """Pass a request about one key to its shard: the answer, or a future of it."""

    @abstractmethod
    def everywhere(
        self, principal: Principal, request: Message, version: int, client_id: str, client_host: str
    ) -> list[Message | Awaitable[Message]]:
        """Pass a request about all keys to every shard of this node."""
        return self._coordinator.everywhere(request, version, client_id, client_host)

    @abstractmethod
    async def coordinator_of(self, principal: Principal, key: str) -> int:
        """The node that coordinates `key`; ApiError if none does. Creates the internal topic on
        first need.
        """
