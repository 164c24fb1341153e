"""From a frame to its handler, and from the response to the answering frame.

Every request passes here and nowhere else: this is where its principal, its authorisation
and its quota belong. Unknown APIs and versions close the connection, as in Kafka; only
ApiVersions answers an unknown version of itself, so that a newer client can step down. A
handler that fails unexpectedly costs its connection and a line in the log, never the node.
Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import struct
from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING

from penstock.api.registry import APIS, Api, Request
from penstock.net.connection import Connection, Exchange
from penstock.wire.apis import ApiKey
from penstock.wire.decoders import skip_tags
from penstock.wire.errors import WireError
from penstock.wire.schema import Message, Struct

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

log = logging.getLogger("penstock.api")

_HEADER = struct.Struct(">hhih")
_RESPONSE = struct.Struct(">ii")


class Dispatcher:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references

    def __call__(self, connection: Connection, frame: memoryview, received_ns: int) -> None:
        """Start the request in `frame`; its answer goes through the exchange."""
        try:
            key, version, correlation_id, client_id_size = _HEADER.unpack_from(frame)
            position = _HEADER.size
            if client_id_size > 0:
                position += client_id_size
                if position > len(frame):
                    raise ValueError("the client id reaches beyond the frame")
            api = APIS.get(key)
            if api is None:
                connection.refuse(f"there is no API {key} here")
                return
            flexible = api.flexible_from is not None and version >= api.flexible_from
            if version not in api.versions:
                if key != ApiKey.API_VERSIONS:
                    connection.refuse(f"{api.key.name} has no version {version} here")
                    return
                version, flexible = -1, False
            if flexible:
                position = skip_tags(frame, position, len(frame))
        except (struct.error, IndexError, ValueError) as e:
            connection.refuse(f"a request header that cannot be read: {e}")
            return
        exchange = Exchange(connection, key, version, correlation_id, received_ns)
        try:
            if api.handle_raw is not None:
                api.handle_raw(self._broker, exchange, frame, position)
            else:
                self._handle(api, exchange, frame, position)
        except WireError as e:
            connection.refuse(str(e))
        except Exception:
            self._failed(exchange)

    def _handle(self, api: Api, exchange: Exchange, frame: memoryview, position: int) -> None:
        assert api.handle is not None
        if exchange.version < 0:
            body = api.request()
        else:
            # Bytes after the end are let pass, as in Kafka: librdkafka sends some with Metadata.
            body, _ = api.request.decode_from(frame, position, exchange.version)
        request = Request(
            body,
            exchange.api_key,
            exchange.version,
            _client_id(frame),
            exchange.connection.peer_host,
            exchange.connection.listener,
        )
        response = api.handle(self._broker, request)
        if inspect.isawaitable(response):
            exchange.park()
            task = self._loop.create_task(self._finish_later(exchange, response))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._finish(exchange, response)

    async def _finish_later(self, exchange: Exchange, response: Awaitable[Message]) -> None:
        try:
            self._finish(exchange, await response)
        except Exception:
            self._failed(exchange)

    def _finish(self, exchange: Exchange, response: Message) -> None:
        for code in error_codes(response):
            self._broker.count_error(exchange.api_key, code)
        exchange.finish(encode_answer(exchange, response))

    def _failed(self, exchange: Exchange) -> None:
        log.exception(
            "a request failed unexpectedly and its connection is closed",
            extra={"api": ApiKey(exchange.api_key).name, "version": exchange.version},
        )
        exchange.connection.abort()
        exchange.finish(None)


def _client_id(frame: memoryview) -> str | None:
    size = _HEADER.unpack_from(frame)[3]
    if size < 0:
        return None
    try:
        return str(frame[_HEADER.size : _HEADER.size + size], "utf-8")
    except UnicodeDecodeError as e:
        raise WireError("RequestHeader", 2, str(e), field="client_id") from None


def error_codes(part: Struct) -> Iterator[int]:
    """Every error code in a response, wherever it stands."""
    for field in part.FIELDS:
        value = getattr(part, field.name)
        if field.name == "error_code":
            if value:
                yield value
        elif isinstance(value, list) and value and isinstance(value[0], Struct):
            for element in value:
                yield from error_codes(element)


def encode_answer(exchange: Exchange, response: Message) -> bytes:
    """The whole frame of `response`: length, header, body."""
    version = max(exchange.version, 0)
    out = bytearray(8)
    flexible_from = type(response).FLEXIBLE_FROM
    if (
        flexible_from is not None
        and version >= flexible_from
        and exchange.api_key != ApiKey.API_VERSIONS
    ):
        out.append(0)  # no tagged fields in the header
    response.encode_into(out, version)
    _RESPONSE.pack_into(out, 0, len(out) - 4, exchange.correlation_id)
    return bytes(out)
