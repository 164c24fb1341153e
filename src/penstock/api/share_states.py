"""What the handlers of states of share-partitions share: the way to the share coordinator."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar, cast

from penstock.api.registry import Request
from penstock.serving.services import Services
from penstock.wire.schema import Message

R = TypeVar("R", bound=Message)


async def serve(services: Services, request: Request[Any], _: type[R]) -> R:
    """The coordinator's answer, when what it rests on is committed."""
    answer = services.share_states.serve(request.principal, request.body, request.version)
    return cast("R", await answer if inspect.isawaitable(answer) else answer)
