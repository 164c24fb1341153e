"""What the handlers of the clients' transaction APIs share: the way to a transaction's shard."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, cast

from penstock.api.registry import Request
from penstock.api.shards import R, client_host
from penstock.serving.services import Services
from penstock.wire.schema import Message


def to_shard(
    services: Services,
    request: Request[Any],
    transactional_id: str,
    body: Message,
    _: type[R],
    *,
    version: int | None = None,
) -> R | Awaitable[R]:
    """Pass `body` to the shard of a transactional id, when its last transaction has been ended;
    in `version`, if that is not the request's own.
    """
    answer = services.transactions.submit_patiently(
        request.principal,
        transactional_id,
        body,
        request.version if version is None else version,
        request.client_id or "",
        client_host(request),
    )
    return cast("R | Awaitable[R]", answer)
