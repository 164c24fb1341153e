"""The node's listeners: bound and served at the start; opened, closed, limited as settings change.

What is advertised stays as it was at the start (`config.layers` refuses anything else). A listener
that is opened later and cannot be bound is logged, and the others go on. Owned by the event loop's
thread.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.base.errors import PenstockError
from penstock.config.broker_config import BrokerConfig
from penstock.config.listeners import SASL_PROTOCOLS, Listener, address_text
from penstock.kafka.errors import SettingError
from penstock.net.admission import UNLIMITED, Admission, ConnectionLimits, ListenerLimits
from penstock.net.server import Handler, NetLimits, OnAnswered, OnCertificate, Server
from penstock.node.certificates import Certificates
from penstock.raft.types import Endpoint

log = logging.getLogger("penstock.node")

CLOSE_GRACE_S = 10.0
"""How long the requests of a listener that is closed may take."""


class CannotListen(PenstockError):
    """An address of `listeners` cannot be bound, or clients cannot be told where it is."""


class Listening:
    def __init__(
        self,
        config: BrokerConfig,
        descriptors: int,
        handler: Callable[[str], Handler],
        on_answered: OnAnswered,
        certificates: Certificates,
        over_quota_s: Callable[[str], float],
    ) -> None:
        """`handler` gives that of the listener with a name; `over_quota_s` is for `Admission`."""
        self._config = config
        self._certificates = certificates
        self._descriptors = descriptors
        self._handler = handler
        self._on_answered = on_answered
        self._admission = Admission(connection_limits(config, descriptors), over_quota_s)
        self._open: dict[str, tuple[Listener, Server]] = {}
        self._changes: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()
        self.servers: list[Server] = []
        """Also those that were closed: what they have counted still counts."""
        self.address = ""
        """Of the first one, as a client reaches it from here."""
        self.on_certificate: OnCertificate | None = None

    # -- start and stop ------------------------------------------------------------------------

    def bind(self) -> list[Endpoint]:
        """Bind every listener; the advertised addresses follow from what was bound."""
        advertised = {listener.name: listener for listener in self._config.advertised}
        endpoints = []
        for listener in self._config.listen:
            with listening(listener.host, listener.port, "--listen HOST:PORT"):
                host, port = self._bind(listener)
            if not self.address:
                self.address = address_text(listener.host or host, port)
            shown = advertised.get(listener.name, listener)
            endpoints.append(
                Endpoint(listener.name, shown.host or _own_name(listener), shown.port or port)
            )
        return endpoints

    def _bind(self, listener: Listener) -> tuple[str, int]:
        server = Server(
            listener.name,
            net_limits(self._config),
            self._handler(listener.name),
            self._on_answered,
            self._admission,
            self._certificates.load(listener.name),
            login_bytes_max(self._config, listener.name),
        )
        server.on_certificate = self.on_certificate
        self.servers.append(server)
        self._open[listener.name] = (listener, server)
        return server.bind(listener.host or "0.0.0.0", listener.port)

    async def start(self) -> None:
        for _, server in self._open.values():
            await server.start()

    def hurry(self) -> None:
        """Do not wait for clients any longer."""
        for server in self.servers:
            server.hurry()

    async def stop(self, grace_s: float) -> None:
        for change in self._changes:
            change.cancel()
        await asyncio.gather(*self._changes, return_exceptions=True)
        await asyncio.gather(*(server.stop(grace_s) for _, server in self._open.values()))

    # -- while it runs -------------------------------------------------------------------------

    def settings_changed(self, config: BrokerConfig) -> None:
        changed = config.listen != self._config.listen
        self._config = config
        self._admission.limits = connection_limits(config, self._descriptors)
        self._certificates.settings_changed(config)
        if changed:
            change = asyncio.create_task(self._follow())
            self._changes.add(change)
            change.add_done_callback(self._changes.discard)

    async def _follow(self) -> None:
        """Close and open what the settings ask for now."""
        async with self._changing:
            wanted = {listener.name: listener for listener in self._config.listen}
            for name, (listener, server) in list(self._open.items()):
                if wanted.get(name) != listener:
                    del self._open[name]
                    await server.stop(CLOSE_GRACE_S)
                    log.info("closed the listener %s", listener)
            for listener in wanted.values():
                if listener.name not in self._open:
                    await self._open_one(listener)

    async def _open_one(self, listener: Listener) -> None:
        try:
            self._bind(listener)
        except (OSError, SettingError) as e:
            self._open.pop(listener.name, None)
            log.error("cannot listen on %s: %s", listener, getattr(e, "strerror", None) or e)
            return
        await self._open[listener.name][1].start()
        log.info("opened the listener %s", listener)


def _own_name(listener: Listener) -> str:
    """What a listener on every interface advertises: the name of this machine, if that is one."""
    name = socket.getfqdn()
    if name.startswith("localhost"):
        name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError as e:
        raise CannotListen(
            f"{listener} has no host to advertise, and the name of this machine, {name}, is not "
            f"found ({e.strerror or e}): set advertised.listeners to "
            f"{listener.name}://HOST:{listener.port} with an address that clients can use"
        ) from e
    return name


@contextmanager
def listening(host: str, port: int, option: str) -> Iterator[None]:
    """`CannotListen`, with what to do, where an address cannot be bound."""
    try:
        yield
    except OSError as e:
        raise CannotListen(
            f"cannot listen on {address_text(host, port)} ({e.strerror or e}): stop what holds the "
            f"address, or choose another with {option}"
        ) from e


def login_bytes_max(config: BrokerConfig, listener: str) -> int:
    """Of a request before its connection is authenticated; 0 where no login is asked for."""
    if config.protocol(listener) not in SASL_PROTOCOLS:
        return 0
    return config.sasl_server_max_receive_size


def net_limits(config: BrokerConfig) -> NetLimits:
    return NetLimits(
        request_bytes_max=config.socket_request_max_bytes,
        queued_request_bytes_max=config.queued_max_request_bytes,
        idle_ms_max=config.connections_max_idle_ms,
        listen_backlog=config.socket_listen_backlog_size,
        send_buffer_bytes=config.socket_send_buffer_bytes,
        receive_buffer_bytes=config.socket_receive_buffer_bytes,
        busy_poll_us=config.penstock_busy_poll_us,
    )


def connection_limits(config: BrokerConfig, descriptors: int) -> ConnectionLimits:
    """For all listeners, which share so many descriptors."""
    names = [listener.name for listener in config.listen]
    between = {config.inter_broker_listener, config.quorum_listener}
    return ConnectionLimits(
        connections_max=config.max_connections,
        descriptors_max=descriptors // len(names),
        per_ip_max=config.max_connections_per_ip,
        per_ip_overrides=config.per_ip_overrides,
        rate_max=config.max_connection_creation_rate,
        of_listeners={
            name: ListenerLimits(
                config.of_listener(name, "max.connections", UNLIMITED),
                config.of_listener(name, "max.connection.creation.rate", UNLIMITED),
            )
            for name in names
        },
        protected=frozenset(between if len(names) > 1 else ()),
    )
