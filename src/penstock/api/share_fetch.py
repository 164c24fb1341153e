"""ShareFetch (78), versions 1 and 2: records for a member of a share group, and acknowledgements of
earlier ones.

Version 2 can ask for exactly as many records as it names, and for more time with those it has.
Differences from Kafka: errors come with a sentence more often; a partition that is not led here any
more ends the wait of a request in which no other is left.
"""

from __future__ import annotations

import logging
from functools import partial

from penstock.api.frames import encode_in_parts, encode_in_steps
from penstock.api.metering import mute
from penstock.api.registry import (
    DECODED_AT_ONCE_BYTES_MAX,
    ELEMENTS_AT_ONCE_MAX,
    raw_handler,
)
from penstock.base.steps import Steps
from penstock.net.connection import Connection
from penstock.net.exchange import Exchange
from penstock.net.turn import begin
from penstock.serving.services import Services
from penstock.serving.share_in_flight import ShareFetch, ShareFetchResult
from penstock.wire.errors import WireError
from penstock.wire.messages.share_fetch import NodeEndpoint, ShareFetchRequest, ShareFetchResponse

log = logging.getLogger("penstock.api")


@raw_handler(ShareFetchRequest, ShareFetchResponse)
def share_fetch(services: Services, exchange: Exchange, frame: memoryview, position: int) -> None:
    if len(frame) - position > DECODED_AT_ONCE_BYTES_MAX:
        exchange.connection.hold(len(frame))
        steps = _fetch_in_steps(services, exchange, frame, position)
        exchange.on_abandoned = steps.close
        begin(steps)
        return
    body, _ = ShareFetchRequest.decode_from(frame, position, exchange.version)
    _fetch(services, exchange, body)


def _fetch_in_steps(
    services: Services, exchange: Exchange, frame: memoryview, position: int
) -> Steps[None]:
    """The same for a request with very many acknowledgements: others are served in between."""
    try:
        body, _ = yield from ShareFetchRequest.decode_in_steps(frame, position, exchange.version)
        exchange.on_abandoned = None
        _fetch(services, exchange, body)
    except WireError as broken:
        exchange.connection.refuse(str(broken))
    except Exception:
        log.exception("a ShareFetch request failed unexpectedly")
        exchange.connection.abort()
    finally:
        exchange.connection.release()


def _fetch(services: Services, exchange: Exchange, body: ShareFetchRequest) -> None:
    connection = exchange.connection
    end_with(connection, services)
    cancel = services.share.fetch(
        ShareFetch(connection.principal, body, exchange.version, connection, exchange.usage),
        partial(_answer, services, exchange),
    )
    if cancel is not None:
        exchange.on_abandoned = cancel


class _EndsSessions:
    """What is called when a connection that share sessions came by has ended."""

    def __init__(self, connection: Connection, services: Services) -> None:
        self._before = connection.on_lost
        self._connection = connection
        self._services = services

    def __call__(self) -> None:
        if self._before is not None:
            self._before()
        self._services.share.connection_lost(self._connection)


def end_with(connection: Connection, services: Services) -> None:
    """Have the share sessions of a connection end with it."""
    if type(connection.on_lost) is not _EndsSessions:
        connection.on_lost = _EndsSessions(connection, services)


def _answer(services: Services, exchange: Exchange, result: ShareFetchResult) -> None:
    exchange.local_done_ns = result.waits_since_ns
    if result.failed:
        exchange.connection.abort()
        return
    try:
        response = result.response
        if result.leaders:
            response.node_endpoints = _endpoints(services, exchange, result)
        if result.throttle_ms:
            mute(exchange.connection, result.throttle_ms)
        for code in response.error_codes():
            services.count_error(exchange.api_key, code)
        if response.has_more_than(ELEMENTS_AT_ONCE_MAX):
            begin(_answer_in_steps(exchange, response))
        else:
            exchange.finish(
                encode_in_parts(
                    exchange.api_key, exchange.version, exchange.correlation_id, response
                )
            )
    except Exception:
        _failed(exchange)


def _answer_in_steps(exchange: Exchange, response: ShareFetchResponse) -> Steps[None]:
    try:
        frame = yield from encode_in_steps(
            exchange.api_key, exchange.version, exchange.correlation_id, response
        )
        exchange.finish(frame)
    except Exception:
        _failed(exchange)


def _failed(exchange: Exchange) -> None:
    log.exception("a ShareFetch request could not be answered")
    exchange.connection.abort()


def _endpoints(
    services: Services, exchange: Exchange, result: ShareFetchResult
) -> list[NodeEndpoint]:
    connection = exchange.connection
    found = services.cluster.endpoints(connection.principal, result.leaders, connection.listener)
    return [
        NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
        for node_id, host, port, rack in found
    ]
