"""TLS of a listener: its context, and the handshake of each connection.

A connection is counted and bounded from the moment it is accepted. Its handshake uses the context
of that moment, so certificates and trust are replaced for new connections while old ones stay.

Limits: `HANDSHAKE_S_MAX` for a handshake, `HANDSHAKES_MAX` under way in a listener. When there are
more, the oldest is given up: one that its peer draws out must not keep others out. Owned by the
event loop's thread; `server_context` reads files and belongs in a worker.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeAlias, cast

from penstock.auth.principal import USER, Principal, anonymous
from penstock.config.broker_security import NONE, REQUESTED, REQUIRED
from penstock.kafka.security import Tls, load_identity, load_trust, set_versions_and_ciphers
from penstock.net.admission import Entry

HANDSHAKE_S_MAX: Final = 10.0
HANDSHAKES_MAX: Final = 512
SHUTDOWN_S_MAX: Final = 1.0
"""For the peer's part of the end of a connection."""
ACCEPTED_PER_TURN_MAX: Final = 32
ACCEPT_AGAIN_S: Final = 1.0
_VERIFY: Final = {
    NONE: ssl.CERT_NONE,
    REQUESTED: ssl.CERT_OPTIONAL,
    REQUIRED: ssl.CERT_REQUIRED,
}

NameOf: TypeAlias = Callable[[bytes], str]
"""The user that the certificate (DER) of a client stands for; `ValueError` if nobody."""


def server_context(tls: Tls, client_auth: str) -> ssl.SSLContext:
    """The context of a listener; `SettingError` if what it names cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = _VERIFY[client_auth]
    # A ticket costs a client a round trip less, but keeps what it was when it was given: whoever is
    # not trusted any more would still get in.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    set_versions_and_ciphers(context, tls)
    if context.verify_mode != ssl.CERT_NONE:
        load_trust(context, tls)
    load_identity(context, tls)
    return context


class ListenerTls:
    """What the handshakes of a listener need; `context` may be replaced at any time."""

    def __init__(self, context: ssl.SSLContext, name_of: NameOf | None = None) -> None:
        """`name_of` is None where certificates name nobody, as in SASL_SSL."""
        self.context = context
        self._name_of = name_of
        self.failed_total = 0

    @property
    def asks_for_certificate(self) -> bool:
        return self.context.verify_mode != ssl.CERT_NONE

    def principal_of(self, transport: asyncio.BaseTransport, host: str) -> Principal:
        """`ValueError` where the peer has shown a certificate that names nobody."""
        shown = transport.get_extra_info("ssl_object")
        certificate = None if shown is None else shown.getpeercert(binary_form=True)
        if certificate is None or self._name_of is None:
            return anonymous(host)
        return Principal(USER, self._name_of(certificate), host)


class Accepted(Protocol):
    """What becomes a connection when its handshake is done."""

    peer_host: str
    active_ns: int
    """0 before that."""


class Host(Protocol):
    """Whom the connections are for."""

    loop: asyncio.AbstractEventLoop

    def enter(self, ip: str) -> Entry:
        """Somebody has connected: whether they may stay, and how long they have to wait."""
        ...

    def hold(self, seconds: float, close: Callable[[], None]) -> None:
        """Close who may not stay, after that time."""
        ...

    def leave(self, ip: str) -> None:
        """Who has entered is gone before it was a connection."""
        ...

    def new_connection(self, ip: str) -> Accepted:
        """An asyncio.Protocol."""
        ...

    def refused_handshake(self, ip: str, reason: str) -> None: ...


class Acceptor:
    """Accepts the connections of a listener, has them encrypted, and hands them over.

    A transport cannot be told to wait before its first read, so the socket is accepted here.
    """

    def __init__(self, server: Host, tls: ListenerTls, listening: socket.socket) -> None:
        self._server = server
        self._tls = tls
        self._socket = listening
        self._under_way: dict[asyncio.Task[None], None] = {}
        """Oldest first."""

    def __len__(self) -> int:
        """How many handshakes are under way."""
        return len(self._under_way)

    def start(self, backlog: int) -> None:
        self._socket.listen(backlog)
        self._server.loop.add_reader(self._socket, self._accept)

    def stop(self) -> None:
        """Accept nothing more, and give up what is not encrypted yet."""
        if self._socket.fileno() >= 0:
            self._server.loop.remove_reader(self._socket)
            self._socket.close()
        for handshake in self._under_way:
            handshake.cancel()

    def _accept(self) -> None:
        for _ in range(ACCEPTED_PER_TURN_MAX):
            try:
                sock, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as e:
                # Out of descriptors: those who wait are served when others have gone.
                self._server.loop.remove_reader(self._socket)
                self._server.loop.call_later(ACCEPT_AGAIN_S, self._accept_again)
                self._server.refused_handshake("", f"cannot accept: {e.strerror}")
                return
            self._begin(sock, peer[0])

    def _accept_again(self) -> None:
        if self._socket.fileno() >= 0:
            self._server.loop.add_reader(self._socket, self._accept)

    def _begin(self, sock: socket.socket, ip: str) -> None:
        wait_s, refusal = self._server.enter(ip)
        if refusal:
            self._server.hold(wait_s, partial(self._refuse, sock, ip))
            return
        sock.setblocking(False)
        if len(self._under_way) >= HANDSHAKES_MAX:
            oldest = next(iter(self._under_way))
            del self._under_way[oldest]
            oldest.cancel()
        connection = self._server.new_connection(ip)
        handshake = self._server.loop.create_task(self._handshake(connection, sock, wait_s))
        self._under_way[handshake] = None
        handshake.add_done_callback(lambda _: self._ended(handshake, connection, sock))

    def _refuse(self, sock: socket.socket, ip: str) -> None:
        self._server.leave(ip)
        sock.close()

    async def _handshake(self, connection: Accepted, sock: socket.socket, wait_s: float) -> None:
        try:
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            await self._server.loop.connect_accepted_socket(
                lambda: cast("asyncio.Protocol", connection),
                sock,
                ssl=self._tls.context,
                ssl_handshake_timeout=HANDSHAKE_S_MAX,
                ssl_shutdown_timeout=SHUTDOWN_S_MAX,
            )
        except asyncio.CancelledError:
            self._server.refused_handshake(connection.peer_host, "given up")
        except ConnectionAbortedError:
            reason = f"it took more than {HANDSHAKE_S_MAX:g} s"
            self._server.refused_handshake(connection.peer_host, reason)
        except ConnectionError:
            pass  # who hangs up without a word may only have looked whether somebody listens
        except OSError as e:  # ssl.SSLError is one
            self._server.refused_handshake(connection.peer_host, str(e))

    def _ended(
        self, handshake: asyncio.Task[None], connection: Accepted, sock: socket.socket
    ) -> None:
        """Called for every handshake, also for one that was given up before it began."""
        self._under_way.pop(handshake, None)
        if not connection.active_ns:  # it has never been a connection, so nobody else forgets it
            self._tls.failed_total += 1
            sock.close()
            self._server.leave(connection.peer_host)
