"""What the handlers of the coordinators' APIs share: the way to a shard, and answers put together.

A request about one group or transactional id goes to the shard that keeps it; one about several is
divided, and the answers are put together in the order of the request.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar, cast

from penstock.api.registry import Request
from penstock.net.turn import Turn
from penstock.serving.shards import ShardService
from penstock.wire.schema import Message

R = TypeVar("R", bound=Message)

ANSWERS_PER_CHECK = 100
"""Requests to shards before the clock is checked: they take a millisecond."""


def submit(
    service: ShardService, request: Request[Any], key: str, body: Message, _: type[R]
) -> R | Awaitable[R]:
    """Pass `body` to the shard that keeps `key`."""
    answer = service.submit(
        request.principal, key, body, request.version, request.client_id or "", client_host(request)
    )
    return cast("R | Awaitable[R]", answer)


def submit_everywhere(
    service: ShardService, request: Request[Any], _: type[R]
) -> list[R | Awaitable[R]]:
    """Pass the request to every shard of this node."""
    answers = service.everywhere(
        request.principal,
        request.body,
        request.version,
        request.client_id or "",
        client_host(request),
    )
    return cast("list[R | Awaitable[R]]", answers)


async def together(answers: Iterable[R | Awaitable[R]]) -> list[R]:
    """All the answers, in their order. `answers` asks for each when it comes to it; all are waited
    for at the same time.
    """
    begun: list[R | asyncio.Future[R]] = []
    turn = Turn()
    for number, answer in enumerate(answers, 1):
        begun.append(asyncio.ensure_future(answer) if inspect.isawaitable(answer) else answer)
        if number % ANSWERS_PER_CHECK == 0 and turn.is_over:
            await turn.next()
    return [await given(answer) for answer in begun]


async def given(answer: R | Awaitable[R]) -> R:
    """The answer, when it is there."""
    return await answer if inspect.isawaitable(answer) else answer


def client_host(request: Request[Any]) -> str:
    # As Kafka writes addresses; tools show it so.
    return f"/{request.principal.host}"
