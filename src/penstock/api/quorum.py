"""What the handlers of the quorum's own requests share."""

from __future__ import annotations

from functools import partial

from penstock.api.frames import encode_response
from penstock.api.registry import ANONYMOUS
from penstock.base.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from penstock.net.connection import Exchange
from penstock.serving.services import Services
from penstock.wire.messages.fetch import FetchRequest, FetchResponse


def is_of_metadata(request: FetchRequest) -> bool:
    """Whether a Fetch is for the metadata log, which the quorum answers."""
    topics = request.topics
    return len(topics) == 1 and (
        topics[0].topic_id == METADATA_TOPIC_ID or topics[0].topic == METADATA_TOPIC
    )


def fetch_metadata(services: Services, exchange: Exchange, request: FetchRequest) -> None:
    waiting = services.quorum.fetch(ANONYMOUS, request, partial(_answer, exchange))
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
