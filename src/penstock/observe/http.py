"""The node's HTTP address: a small HTTP/1.1 server for `/metrics`, `/healthz` and `/readyz`.

It answers GET and HEAD without a body from a table of routes that other modules may add to, one
request at a time on each connection, and keeps the connection open if the client does.

Limits: `HEADER_BYTES_MAX` for a request's head, `CONNECTIONS_MAX` at once, `HEADER_TIMEOUT_S` for a
head to arrive (and for an idle connection to send the next), `SEND_TIMEOUT_S` for an answer to be
made and taken. A connection that exceeds one is closed. It runs on the event loop that called
`start` and owns no thread.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from time import monotonic_ns
from typing import NamedTuple, TypeAlias, cast
from urllib.parse import unquote

from penstock.base.errors import invariant
from penstock.observe.health import Health
from penstock.observe.metrics import Registry

log = logging.getLogger(__name__)

HEADER_BYTES_MAX = 16 * 1024
CONNECTIONS_MAX = 100
HEADER_TIMEOUT_S = 30.0
SEND_TIMEOUT_S = 30.0

_END_OF_HEAD = b"\r\n\r\n"
_METHODS = ("GET", "HEAD")


class HttpRequest(NamedTuple):
    method: str
    path: str
    query: str
    headers: dict[str, str]
    """By lower-case name; of a repeated header, the last."""
    keep_alive: bool


class HttpResponse(NamedTuple):
    status: HTTPStatus
    body: bytes
    content_type: str = "application/json"


Handler: TypeAlias = Callable[[HttpRequest], Awaitable[HttpResponse]]


class BadHttp(Exception):
    """The peer sent something that is not a valid request; it gets an error and is closed."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def json_response(code: HTTPStatus, **fields: object) -> HttpResponse:
    return HttpResponse(code, json.dumps(fields).encode() + b"\n")


def parse_head(head: bytes) -> HttpRequest:
    """The request whose head (all before the empty line) this is; `BadHttp` if it is none."""
    lines = head.decode("latin-1").split("\r\n")
    try:
        method, target, version = lines[0].split(" ")
    except ValueError:
        raise BadHttp(
            HTTPStatus.BAD_REQUEST, "the request line is not METHOD TARGET VERSION"
        ) from None
    if version not in ("HTTP/1.0", "HTTP/1.1"):
        raise BadHttp(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "speak HTTP/1.1 or HTTP/1.0")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadHttp(HTTPStatus.BAD_REQUEST, "a header line is not NAME: VALUE")
        headers[name.lower()] = value.strip()
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadHttp(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "no path here takes a request body")
    path, _, query = target.partition("?")
    connection = headers.get("connection", "").lower()
    keep_alive = connection != "close" if version == "HTTP/1.1" else connection == "keep-alive"
    return HttpRequest(method, unquote(path), query, headers, keep_alive)


class HttpServer:
    """Serves the routes on one address; `routes` may be added to before and after `start`."""

    def __init__(self, registry: Registry, health: Callable[[], Health]) -> None:
        self._registry = registry
        self._health = health
        self._server: asyncio.Server | None = None
        self.connections: set[HttpConnection] = set()
        self.routes: dict[str, Handler] = {
            "/metrics": self._metrics,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
        }

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one, which `address` then returns."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: HttpConnection(self, loop), host, port)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that the server listens on."""
        invariant(self._server is not None, "the HTTP server has no address before it is started")
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def stop(self) -> None:
        """Stop listening and close every connection."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self.connections):
            connection.abort()
        await self._server.wait_closed()
        self._server = None

    async def respond(self, request: HttpRequest) -> HttpResponse:
        """The answer to a request; a handler's failure is logged and becomes status 500."""
        if request.method not in _METHODS:
            return json_response(
                HTTPStatus.METHOD_NOT_ALLOWED, error="only GET and HEAD are served"
            )
        handler = self.routes.get(request.path)
        if handler is None:
            known = ", ".join(sorted(self.routes))
            return json_response(HTTPStatus.NOT_FOUND, error=f"there is no such path; try {known}")
        try:
            return await handler(request)
        except Exception:
            log.exception("an HTTP request failed", extra={"path": request.path})
            return json_response(
                HTTPStatus.INTERNAL_SERVER_ERROR, error="failed; see the node's log"
            )

    async def _metrics(self, _: HttpRequest) -> HttpResponse:
        from penstock.observe.exposition import CONTENT_TYPE  # see Registry.render_parts

        parts = []
        for part in self._registry.render_parts():
            parts.append(part)
            await asyncio.sleep(0)  # a long scrape must not hold up requests
        return HttpResponse(HTTPStatus.OK, b"".join(parts), CONTENT_TYPE)

    async def _healthz(self, _: HttpRequest) -> HttpResponse:
        health = self._health()
        return _health_response(health.live, health.reason)

    async def _readyz(self, _: HttpRequest) -> HttpResponse:
        health = self._health()
        return _health_response(health.live and health.ready, health.reason)


def _health_response(good: bool, reason: str) -> HttpResponse:
    if good:
        return json_response(HTTPStatus.OK, status="ok", reason=reason)
    return json_response(HTTPStatus.SERVICE_UNAVAILABLE, status="unavailable", reason=reason)


class HttpConnection(asyncio.Protocol):
    """One client: reads a head, answers it in a task, then reads the next.

    Reading is paused while an answer is made, so that a client that pipelines fills no memory.
    Exactly one timer runs at a time: for the head while reading, for the answer while answering.
    """

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._drained = asyncio.Event()
        self._drained.set()
        self.peer_host = ""
        self.active_ns = 0
        """When it was made; 0 before that."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)  # uvloop has its own classes
        self.active_ns = monotonic_ns()
        if len(self._server.connections) >= CONNECTIONS_MAX:
            stream.abort()
            return
        self._transport = stream
        self._server.connections.add(self)
        stream.set_write_buffer_limits(high=0)
        self._restart_timer(HEADER_TIMEOUT_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._task is None:
            self._next_request()

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _restart_timer(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self.abort)

    def _next_request(self) -> None:
        """Start the next request if its head has arrived completely."""
        transport = self._transport
        end = self._buffer.find(_END_OF_HEAD)
        if transport is None or (end < 0 and len(self._buffer) <= HEADER_BYTES_MAX):
            return
        transport.pause_reading()
        self._restart_timer(SEND_TIMEOUT_S)
        head, self._buffer = self._buffer[:end], self._buffer[end + len(_END_OF_HEAD) :]
        self._task = self._loop.create_task(self._answer(transport, head if end >= 0 else None))

    async def _answer(self, transport: asyncio.Transport, head: bytes | None) -> None:
        """Answer one request (`head` is None if it was too long) and continue or close."""
        method, keep_alive = "GET", False
        try:
            if head is None or len(head) > HEADER_BYTES_MAX:
                reason = f"the head of a request may have {HEADER_BYTES_MAX} bytes"
                raise BadHttp(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, reason)
            request = parse_head(head)
            method, keep_alive = request.method, request.keep_alive
            response = await self._server.respond(request)
        except BadHttp as e:
            response = json_response(e.status, error=str(e))
        if transport.is_closing():
            return
        transport.write(_encode(response, with_body=method != "HEAD", keep_alive=keep_alive))
        await self._drained.wait()
        self._task = None
        if not keep_alive or transport.is_closing():
            transport.close()
            return
        transport.resume_reading()
        self._restart_timer(HEADER_TIMEOUT_S)
        self._next_request()


def _encode(response: HttpResponse, *, with_body: bool, keep_alive: bool) -> bytes:
    status = response.status
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.body)}\r\n"
        f"Cache-Control: no-store\r\n"
        f"Connection: {'keep-alive' if keep_alive else 'close'}\r\n"
    )
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        head += f"Allow: {', '.join(_METHODS)}\r\n"
    return (head + "\r\n").encode("latin-1") + (response.body if with_body else b"")
