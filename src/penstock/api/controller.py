"""What the handlers of the controller's APIs share: the way to the active controller.

A request is tried until its own time-out is over, `TIMEOUT_MS` where it has none. When the time is
over the answer is NOT_CONTROLLER, which clients retry. One that came in an envelope is decided here
or not at all.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from penstock.api.registry import Request
from penstock.serving.broker import Broker
from penstock.wire.schema import Message

TIMEOUT_MS = 30_000

R = TypeVar("R", bound=Message)


async def ask(broker: Broker, request: Request[Any], _: type[R]) -> R:
    """The active controller's response; `ApiError` if it refuses, or could not be asked."""
    timeout_s = getattr(request.body, "timeout_ms", TIMEOUT_MS) / 1000
    response = await broker.controller.ask(
        request.body,
        version=request.version,
        principal=request.principal,
        client_host=request.client_host,
        timeout_s=timeout_s,
        attempt_s=timeout_s,
        forward=not request.forwarded,
    )
    return cast("R", response)


async def decide(broker: Broker, request: Request[Any], _: type[R]) -> R:
    """The response of the controller on this node to a broker's own request; `ApiError`
    NOT_CONTROLLER where it is elsewhere.
    """
    response = await broker.controller.ask(request.body, link=request.connection, forward=False)
    return cast("R", response)
