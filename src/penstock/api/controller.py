"""What the handlers of the controller's APIs share: the way to the active controller.

A request is tried until its own time-out is over. Then the answer is NOT_CONTROLLER, which clients
retry. One that came in an envelope is decided here or not at all. Where the controller has the
client wait for its quota, the node that it is connected to mutes it.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from penstock.api.metering import mute
from penstock.api.registry import Request
from penstock.serving.services import Services
from penstock.wire.schema import Message

R = TypeVar("R", bound=Message)


async def ask(services: Services, request: Request[Any], _: type[R]) -> R:
    """The active controller's response; `ApiError` if it refuses, or could not be asked."""
    response = await services.cluster.ask(
        request.principal,
        request.body,
        request.version,
        forward=not request.forwarded,
        client_id=request.client_id,
    )
    wait_ms = getattr(response, "throttle_time_ms", 0)
    if wait_ms and not request.forwarded:
        mute(request.connection, wait_ms)
    return cast("R", response)


async def decide(services: Services, request: Request[Any], _: type[R]) -> R:
    """The response of the controller on this node to a broker's own request; `ApiError`
    NOT_CONTROLLER where it is elsewhere.
    """
    response = await services.cluster.decide(request.principal, request.body, request.connection)
    return cast("R", response)
