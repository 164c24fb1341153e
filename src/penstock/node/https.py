"""The node's HTTP address by TLS: the same routes, with a certificate that is replaced as those of
the listeners are.

Limits: those of `observe.http` for connections, those of `net.tls` for handshakes. It runs on the
event loop that called `start`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from penstock.base.errors import invariant
from penstock.net.admission import Entry
from penstock.net.server import NetLimits, bound_socket
from penstock.net.tls import Acceptor, ListenerTls
from penstock.observe.health import Health
from penstock.observe.http import CONNECTIONS_MAX, HttpConnection, HttpServer
from penstock.observe.metrics import Registry

log = logging.getLogger("penstock.node")

BACKLOG = 100


class HttpsServer(HttpServer):
    def __init__(self, registry: Registry, health: Callable[[], Health], tls: ListenerTls) -> None:
        super().__init__(registry, health)
        self.tls = tls
        self.loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._acceptor: Acceptor | None = None

    async def start(self, host: str, port: int) -> None:
        self._socket = bound_socket(host, port, NetLimits())
        self._acceptor = Acceptor(self, self.tls, self._socket)
        self._acceptor.start(BACKLOG)

    @property
    def address(self) -> tuple[str, int]:
        invariant(self._socket is not None, "the HTTP server has no address before it is started")
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        return host, port

    async def stop(self) -> None:
        if self._acceptor is not None:
            self._acceptor.stop()
        for connection in list(self.connections):
            connection.abort()

    # -- called by the acceptor ----------------------------------------------------------------

    def enter(self, ip: str) -> Entry:
        full = len(self.connections) >= CONNECTIONS_MAX
        return Entry(refusal="its limit of connections" if full else "")

    def hold(self, seconds: float, close: Callable[[], None]) -> None:
        close()

    def leave(self, ip: str) -> None:
        """Nothing is counted but connections."""

    def new_connection(self, ip: str) -> HttpConnection:
        return HttpConnection(self, self.loop)

    def refused_handshake(self, ip: str, reason: str) -> None:
        log.debug("a TLS handshake of the HTTP address failed: %s", reason)
