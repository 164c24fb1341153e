"""The listener: accepts connections within limits, sweeps idle ones, stops without losing
answers.

Limits: `connections.max.idle.ms`, `socket.request.max.bytes`, `queued.max.request.bytes`, and those
of `admission`, which a node's listeners share. Where connections have to be authenticated:
`LOGIN_S_MAX` for that, and `LOGIN_BYTES_MAX` for all that is arriving meanwhile, which is counted
apart, so that nobody who is in waits for those who are not. Owned by the event loop's thread.
The room above hands in `handler`, called with each frame (without its length) and the time
it arrived, and `on_answered`, called after each answer has been handed to the transport,
with the times at which it was ready and handed over.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter as Tally
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns
from typing import Final, TypeAlias, cast

from penstock.auth.principal import ANONYMOUS_NAME, NOBODY, Principal, anonymous
from penstock.net.admission import Admission, Entry
from penstock.net.busy_poll import BusyPoll
from penstock.net.connection import REQUEST_BYTES_MIN, Connection
from penstock.net.exchange import Exchange
from penstock.net.memory import UNLIMITED, RequestMemory
from penstock.net.tls import Acceptor, ListenerTls

log = logging.getLogger("penstock.net")

Handler: TypeAlias = Callable[[Connection, memoryview, int], None]
OnAnswered: TypeAlias = Callable[[Exchange], None]
OnCertificate: TypeAlias = Callable[[str, str, Principal | None, str], None]
"""The listener, the address of the peer, who it is, and why it is nobody."""

IDLE_SWEEP_SECONDS_MAX = 5.0
REFUSALS_LOGGED_PER_SWEEP_MAX = 10
LOGIN_S_MAX: Final = 30.0
LOGIN_BYTES_MAX: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class NetLimits:
    request_bytes_max: int = 100 * 1024 * 1024
    queued_request_bytes_max: int = UNLIMITED
    idle_ms_max: int = 10 * 60 * 1000
    listen_backlog: int = 50
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    busy_poll_us: int = 0


class Server:
    def __init__(
        self,
        name: str,
        limits: NetLimits,
        handler: Handler,
        on_answered: OnAnswered,
        admission: Admission | None = None,
        tls: ListenerTls | None = None,
        login_bytes_max: int = 0,
    ) -> None:
        """`login_bytes_max`: of a frame before its connection is authenticated, where `handler`
        takes logins; such a frame may be a message without a header.
        """
        self.name = name
        self.tls = tls
        self.loop = asyncio.get_running_loop()
        self.handler = handler
        self.answered = on_answered
        self.busy_poll = BusyPoll(self.loop, limits.busy_poll_us)
        self.memory = RequestMemory(limits.queued_request_bytes_max)
        self.request_bytes_max = limits.request_bytes_max
        self.asks_for_login = login_bytes_max > 0
        self.frame_bytes_min = 0 if self.asks_for_login else REQUEST_BYTES_MIN
        self.frame_bytes_max = login_bytes_max or limits.request_bytes_max
        self.login_memory = RequestMemory(LOGIN_BYTES_MAX)
        self.connections: dict[Connection, None] = {}
        self._logging_in: dict[Connection, float] = {}
        """Since when, in the loop's time; the oldest first."""
        self.accepted_total = 0
        self.refused_total: Tally[str] = Tally()
        self.admission = admission or Admission()
        self._limits = limits
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._acceptor: Acceptor | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._refusals_logged = 0
        self._stop_by = 0.0
        self.on_certificate: OnCertificate | None = None
        """Told who has shown a certificate, or that a handshake failed where one is asked for."""

    def bind(self, host: str, port: int) -> tuple[str, int]:
        """Take the address (the system chooses a port for 0) without serving it yet."""
        self._socket = bound_socket(host, port, self._limits)
        bound_host, bound_port = self._socket.getsockname()[:2]
        return bound_host, bound_port

    async def start(self) -> None:
        """Serve the bound address."""
        assert self._socket is not None
        if self.tls is not None:
            self._acceptor = Acceptor(self, self.tls, self._socket)
            self._acceptor.start(self._limits.listen_backlog)
        else:
            self._server = await self.loop.create_server(
                lambda: cast("asyncio.Protocol", Connection(self)),
                sock=self._socket,
                backlog=self._limits.listen_backlog,
            )
        self._sweep()

    async def stop(self, grace_seconds: float) -> None:
        """Accept and read nothing more, answer what has arrived, then hang up."""
        if self._server is not None:
            self._server.close()
        elif self._acceptor is not None:
            self._acceptor.stop()
        elif self._socket is not None:
            self._socket.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            connection.close_when_answered()
        self._stop_by = self.loop.time() + grace_seconds
        while self.connections and self.loop.time() < self._stop_by:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.abort()

    def hurry(self) -> None:
        """Do not wait for clients any longer."""
        self._stop_by = 0.0

    @property
    def open_connections(self) -> int:
        """With those whose handshake is under way."""
        under_way = 0 if self._acceptor is None else len(self._acceptor)
        return len(self.connections) + under_way

    # -- called by connections -----------------------------------------------------------------

    def admit(self, connection: Connection, entered: bool) -> bool:
        """Whether it may stay; it counts until it is forgotten in any case."""
        self.connections[connection] = None
        wait_s = 0.0
        if not entered:
            wait_s, refusal = self.enter(connection.peer_host)
            if refusal:
                self.hold(wait_s, connection.abort)
                return False
            if wait_s > 0:
                connection.hold_up(wait_s)
        if self.asks_for_login:
            self._logging_in[connection] = self.loop.time() + wait_s
        return True

    def hold(self, seconds: float, close: Callable[[], None]) -> None:
        """Close who may not stay, after that time: so its client does not come again sooner."""
        if not seconds:
            close()
            return
        self.admission.held += 1

        def close_now() -> None:
            self.admission.held -= 1
            close()

        self.loop.call_later(seconds, close_now)

    def principal_of(
        self, connection: Connection, transport: asyncio.BaseTransport
    ) -> Principal | None:
        """Who a new connection belongs to; None where its certificate names nobody."""
        if self.asks_for_login:
            return NOBODY
        if self.tls is None:
            return anonymous(connection.peer_host)
        try:
            principal = self.tls.principal_of(transport, connection.peer_host)
        except ValueError as e:
            self._note_refusal(connection.peer_host, "certificate", str(e))
            self._tell_certificate(connection.peer_host, None, str(e))
            return None
        if principal.name != ANONYMOUS_NAME:
            self._tell_certificate(connection.peer_host, principal, "")
        return principal

    def new_connection(self, ip: str) -> Connection:
        """For a peer that has entered, and whose handshake is under way."""
        return Connection(self, entered_from=ip)

    def forget(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self._logging_in.pop(connection, None)
        self.leave(connection.peer_host)

    def enter(self, ip: str) -> Entry:
        """Somebody has connected; they count until they leave in any case."""
        entry = self.admission.enter(self.name, ip, self.loop.time())
        if entry.refusal:
            self._note_refusal(ip, entry.refusal, f"{entry.refusal} is reached")
        else:
            self.accepted_total += 1
        return entry

    def leave(self, ip: str) -> None:
        self.admission.left(self.name, ip)

    def refused_handshake(self, ip: str, reason: str) -> None:
        self._note_refusal(ip, "handshake", f"the TLS handshake failed: {reason}")
        if self.tls is not None and self.tls.asks_for_certificate:
            self._tell_certificate(ip, None, f"the TLS handshake failed: {reason}")

    def refused(self, connection: Connection, reason: str) -> None:
        self._note_refusal(connection.peer_host, "protocol", reason)

    def _tell_certificate(self, ip: str, principal: Principal | None, reason: str) -> None:
        if self.on_certificate is not None:
            self.on_certificate(self.name, ip, principal, reason)

    # -- duties --------------------------------------------------------------------------------

    def _note_refusal(self, ip: str, kind: str, reason: str) -> None:
        self.refused_total[kind] += 1
        self._refusals_logged += 1
        if self._refusals_logged <= REFUSALS_LOGGED_PER_SWEEP_MAX:
            log.warning("connection from %s closed: %s", ip, reason)

    def _sweep(self) -> None:
        """Close connections on which nothing has happened for `connections.max.idle.ms`."""
        self._refusals_logged = 0
        idle_seconds = self._limits.idle_ms_max / 1000
        oldest_ns = monotonic_ns() - self._limits.idle_ms_max * 1_000_000
        for connection in list(self.connections) if idle_seconds >= 0 else ():
            if connection.active_ns < oldest_ns and connection.idle:
                self.refused_total["idle"] += 1
                connection.abort()
        self._sweep_logins()
        delay = min(IDLE_SWEEP_SECONDS_MAX, max(idle_seconds / 4, 0.05))
        self._sweeper = self.loop.call_later(delay, self._sweep)

    def _sweep_logins(self) -> None:
        """Close connections that take too long to authenticate, however busy they look."""
        oldest = self.loop.time() - LOGIN_S_MAX
        for connection, since in list(self._logging_in.items()):
            if connection.principal is not NOBODY:
                del self._logging_in[connection]
            elif since < oldest:
                reason = f"it did not authenticate within {LOGIN_S_MAX:g} s"
                self._note_refusal(connection.peer_host, "login", reason)
                connection.abort()


def bound_socket(host: str, port: int, limits: NetLimits) -> socket.socket:
    """The one place where a listener meets the system; a simulated network puts its own here."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit the buffer sizes of the listening one.
        for option, size in (
            (socket.SO_SNDBUF, limits.send_buffer_bytes),
            (socket.SO_RCVBUF, limits.receive_buffer_bytes),
        ):
            if size > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        sock.setblocking(False)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock
