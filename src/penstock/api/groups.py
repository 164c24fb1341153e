"""What the handlers of the group APIs share: the way to a group's shard, and answers put together.

A request about one group goes to the shard that keeps it; one about several is divided, and the
answers are put together in the order of the request.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar, cast

from penstock.api.registry import Request
from penstock.broker.broker import Broker
from penstock.wire.schema import Message

R = TypeVar("R", bound=Message)

GROUP_OPERATIONS = sum(1 << op for op in (3, 6, 8, 10, 11))
"""What a group's ACLs know, by code: without authorisation everybody may do it all."""


def to_shard(
    broker: Broker, request: Request[Any], group_id: str, body: Message, _: type[R]
) -> R | Awaitable[R]:
    """Hand `body` to the shard of the group."""
    answer = broker.groups.submit(
        group_id, body, request.version, request.client_id or "", _host(request)
    )
    return cast("R | Awaitable[R]", answer)


def to_all_shards(broker: Broker, request: Request[Any], _: type[R]) -> list[R | Awaitable[R]]:
    """Hand the request to every shard of this node."""
    answers = broker.groups.everywhere(
        request.body, request.version, request.client_id or "", _host(request)
    )
    return cast("list[R | Awaitable[R]]", answers)


async def together(answers: Iterable[R | Awaitable[R]]) -> list[R]:
    """All the answers, in their order."""
    return list(await asyncio.gather(*(_given(answer) for answer in answers)))


async def _given(answer: R | Awaitable[R]) -> R:
    return await answer if inspect.isawaitable(answer) else answer


def _host(request: Request[Any]) -> str:
    # As Kafka writes addresses; tools show it so.
    return f"/{request.client_host}"
