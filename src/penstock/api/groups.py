"""What the handlers of the group APIs share: the way to a group's shard."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from penstock.api.registry import Request
from penstock.api.shards import R, submit, submit_everywhere
from penstock.serving.services import Services
from penstock.wire.schema import Message


def to_shard(
    services: Services, request: Request[Any], group_id: str, body: Message, response: type[R]
) -> R | Awaitable[R]:
    """Pass `body` to the shard of the group."""
    return submit(services.groups, request, group_id, body, response)


def to_all_shards(
    services: Services, request: Request[Any], response: type[R]
) -> list[R | Awaitable[R]]:
    """Pass the request to every group shard of this node."""
    return submit_everywhere(services.groups, request, response)
