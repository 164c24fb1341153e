"""The connections to other nodes, opened on first use and closed when idle.

A peer serves one request of a connection at a time, and a long poll holds its connection for as
long as it waits. So there is one connection per address and *channel*: requests that may wait long
have their own channel and delay no others.

After a failed attempt to connect, further ones to the same address fail at once until a pause is
over, which grows from `BACKOFF_S` to `BACKOFF_MAX_S`: callers retry as they like and the network
is not flooded. Limits: `IDLE_S_MAX` without a request closes a connection. Owned by the event
loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from typing import Any

from penstock.observe.logs import Alarm
from penstock.peers.connection import (
    CONNECT_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    Address,
    PeerConnection,
)
from penstock.peers.errors import PeerUnreachable
from penstock.peers.ways import Ways
from penstock.wire.schema import Message

log = logging.getLogger("penstock.peers")

BACKOFF_S = 0.02
BACKOFF_MAX_S = 0.5
IDLE_S_MAX = 60.0
KNOCK_TIMEOUT_S = 0.3


class Channel(Enum):
    """What a connection is for."""

    QUORUM = "quorum"  # votes and the like: never waits
    METADATA = "metadata"  # the fetcher of the metadata log: long polls
    CONTROLLER = "controller"  # heartbeats and registration
    PARTITIONS = "partitions"  # AlterPartition
    FORWARD = "forward"  # clients' requests, which wait for their records
    REPLICA = "replica"  # the fetcher of partitions: long polls
    MARKERS = "markers"  # the ends of transactions, which wait for their records
    VERIFICATION = "verification"  # AddPartitionsToTxn; producers wait for it
    SHARE_STATE = "share state"  # states of share-partitions; acknowledgements wait for them
    OFFSETS = "offsets"  # where partitions end: never waits
    WRITER = "writer"  # transactions of this node itself, which wait for their records
    AUDIT = "audit"  # events for the audit log, which wait for their replicas


class Knock(Enum):
    """The outcome of a new connection to an address."""

    REFUSED = "refused"
    ACCEPTED = "accepted"
    SILENT = "silent"


class _Link:
    """The connection of one address and channel, and how its last attempts went."""

    __slots__ = ("attempt", "connection", "error", "pause_s", "retry_at_s")

    def __init__(self) -> None:
        self.connection: PeerConnection | None = None
        self.attempt: asyncio.Task[PeerConnection] | None = None
        self.error: PeerUnreachable | None = None
        self.pause_s = 0.0
        self.retry_at_s = 0.0


class Peers:
    def __init__(
        self,
        client_id: str,
        on_lost: Callable[[Address, Channel], None] | None = None,
        ways: Ways | None = None,
    ) -> None:
        """Without `ways` everybody is reached in plain text."""
        self.on_lost = on_lost
        """Called with the address of every connection that broke, not of those closed here."""
        self.ways = Ways() if ways is None else ways
        self._alarm = Alarm(log, level=logging.WARNING)
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._links: dict[tuple[Address, Channel], _Link] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._stopped = False

    async def send(
        self,
        address: Address,
        channel: Channel,
        request: Message,
        version: int | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Any:
        """The response to `request`, or a `PeerError`."""
        connection = await self.connection(address, channel, min(timeout_s, CONNECT_TIMEOUT_S))
        return await connection.send(request, version, timeout_s)

    async def connection(
        self, address: Address, channel: Channel, timeout_s: float = CONNECT_TIMEOUT_S
    ) -> PeerConnection:
        """The open connection; one is made if there is none."""
        link = self._links.get((address, channel))
        if link is None:
            link = self._links[address, channel] = _Link()
            self._arm_sweeper()
        if link.connection is not None and link.connection.session_ends_s < self._loop.time():
            # The next request would be refused; what is under way is still answered.
            old, link.connection = link.connection, None
            old.close_when_idle()
        if link.connection is not None and not link.connection.closed:
            return link.connection
        if link.attempt is None:
            if self._stopped:
                raise PeerUnreachable("this node is stopping")
            if link.error is not None and self._loop.time() < link.retry_at_s:
                raise type(link.error)(str(link.error))
            link.attempt = self._loop.create_task(self._connect(link, address, channel, timeout_s))
            link.attempt.add_done_callback(_take_note)
        attempt = link.attempt
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            if attempt.cancelled():
                raise PeerUnreachable("this node is stopping") from None
            raise

    async def _connect(
        self, link: _Link, address: Address, channel: Channel, timeout_s: float
    ) -> PeerConnection:
        connection = PeerConnection(address, self._client_id, self._lost(channel))
        ways, listener = self.ways, address.listener
        if ways.is_fallback(listener):
            self._alarm.raised(
                str(address),
                "a node does not offer the listener that it is to be reached by, and is reached by "
                "another one",
                at=str(address),
                listener=listener,
            )
        try:
            await connection.connect(timeout_s, ways.tls(listener), ways.logins.get(listener))
        except PeerUnreachable as e:
            link.pause_s = min(BACKOFF_MAX_S, link.pause_s * 2 or BACKOFF_S)
            link.retry_at_s = self._loop.time() + link.pause_s
            link.error = e
            raise
        finally:
            link.attempt = None
        if self._stopped:
            connection.close()
            raise PeerUnreachable("this node is stopping")
        link.connection = connection
        link.error = None
        link.pause_s = 0.0
        return connection

    def _lost(self, channel: Channel) -> Callable[[PeerConnection], None]:
        def lost(connection: PeerConnection) -> None:
            link = self._links.get((connection.address, channel))
            if link is None or link.connection is not connection:
                return  # closed here
            link.connection = None
            if self.on_lost is not None and not self._stopped:
                self.on_lost(connection.address, channel)

        return lost

    def forget(self, address: Address) -> None:
        """Nothing will be sent to `address` any more: close all its channels."""
        for key in [key for key in self._links if key[0] == address]:
            link = self._links.pop(key)
            if link.connection is not None:
                link.connection.close()

    def _arm_sweeper(self) -> None:
        if self._sweeper is None and not self._stopped:
            self._sweeper = self._loop.call_later(IDLE_S_MAX / 2, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        oldest = self._loop.time() - IDLE_S_MAX
        for key, link in list(self._links.items()):
            connection = link.connection
            if connection is None:
                if link.attempt is None and link.retry_at_s < oldest:
                    del self._links[key]
            elif connection.idle and connection.active_s < oldest:
                del self._links[key]
                connection.close()
        if self._links:
            self._arm_sweeper()

    def close(self) -> None:
        """Close all connections; unanswered requests fail as lost."""
        self._stopped = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        links, self._links = self._links, {}
        for link in links.values():
            if link.connection is not None:
                link.connection.close()
            if link.attempt is not None:
                link.attempt.cancel()


def _take_note(attempt: asyncio.Task[PeerConnection]) -> None:
    """The waiting task may have been cancelled: do not report the failure as never retrieved."""
    if not attempt.cancelled():
        attempt.exception()


async def knock(address: Address, timeout_s: float = KNOCK_TIMEOUT_S) -> Knock:
    """Whether something listens at `address`: open a connection and close it again."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            transport, _ = await loop.create_connection(asyncio.Protocol, *address[:2])
    except ConnectionRefusedError:
        return Knock.REFUSED
    except OSError:  # a TimeoutError is one
        return Knock.SILENT
    transport.abort()
    return Knock.ACCEPTED
