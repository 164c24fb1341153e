"""What the handlers of the quorum's own requests share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from penstock.api.frames import encode_response
from penstock.api.registry import Request
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from penstock.net.exchange import Exchange
from penstock.serving.services import Services
from penstock.wire.messages.fetch import FetchRequest, FetchResponse
from penstock.wire.schema import Message

R = TypeVar("R", bound=Message)


def is_of_metadata(request: FetchRequest) -> bool:
    """Whether a Fetch is for the metadata log, which the quorum answers."""
    topics = request.topics
    return len(topics) == 1 and (
        topics[0].topic_id == METADATA_TOPIC_ID or topics[0].topic == METADATA_TOPIC
    )


async def handled(
    services: Services, request: Request[Any], refusal: Callable[[ErrorCode], R]
) -> R:
    """The quorum's answer to another node."""
    try:
        answer = services.quorum.handle(request.principal, request.body, request.listener)
        return cast("R", await answer)
    except ApiError as e:
        return refusal(e.code)


def fetch_metadata(services: Services, exchange: Exchange, request: FetchRequest) -> None:
    try:
        connection = exchange.connection
        waiting = services.quorum.fetch(
            connection.principal, request, connection.listener, partial(_answer, exchange)
        )
    except ApiError as e:
        _answer(exchange, FetchResponse(error_code=e.code))
        return
    if not exchange.done:
        exchange.park()
        exchange.on_abandoned = waiting.cancel


def _answer(exchange: Exchange, response: FetchResponse | None) -> None:
    if response is None:
        exchange.connection.abort()
        return
    exchange.finish(
        encode_response(exchange.api_key, exchange.version, exchange.correlation_id, response)
    )
