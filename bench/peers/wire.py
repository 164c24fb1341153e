"""What a peer's protocol gives to the load: requests as ready bytes, and what their answers mean.

The load generator (`load.py`) is one for all peers. It knows sockets, time and counting, and
nothing of protocols; a wire knows its protocol, and nothing of time. So whatever the generator
costs, it costs every peer the same, and what a protocol needs of Python per message is kept as
small as the protocol allows: a request is encoded once and sent again and again.

A `Wire` belongs to one server; `Publisher` and `Consumer` belong to one connection each. All are
used by one thread.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol


class PeerError(Exception):
    """A peer refused something or went away; the message says which and what was asked of it."""


class Received(NamedTuple):
    """What arrived on a consumer's connection: whole messages, and bytes to send for more."""

    messages: int
    reply: bytes | bytearray | None


class Publisher(Protocol):
    """Publishes the same request again and again on one connection."""

    request: bytes | bytearray
    """One request as it goes over the wire. A peer without batches gets its messages one behind
    the other in one write."""

    def acknowledged(self, data: memoryview) -> int:
        """Takes what arrived; says how many whole requests it acknowledges, all their messages
        included. Raises PeerError when one is refused. `data` is valid during the call only.
        """
        ...


class Consumer(Protocol):
    """Reads a topic from its start on one connection, as fast as it is asked."""

    first: bytes | bytearray
    """What is sent to begin."""

    def received(self, data: memoryview) -> Received:
        """Takes what arrived. `data` is valid during the call only."""
        ...


class Wire(ABC):
    """One server's protocol."""

    @abstractmethod
    def make(self, topic: str, *, groups: int = 1) -> None:
        """Makes `topic` (a stream, a queue) with one partition, empty, ready to be published to and
        to be read by `groups` groups, each of which gets every message.
        """

    @abstractmethod
    def remove(self, topic: str) -> None:
        """Deletes it with all that it holds."""

    @abstractmethod
    def publisher(
        self, sock: socket.socket, topic: str, *, size: int, messages: int, acks: str
    ) -> Publisher:
        """Opens `sock` (connected, blocking) for requests of `messages` messages of `size` bytes;
        `acks` is "1" or "all".
        """

    @abstractmethod
    def consumer(self, sock: socket.socket, topic: str, *, group: int) -> Consumer:
        """Opens `sock` (connected, blocking) for group number `group` (from 0). After `first` was
        sent, messages come as soon as they are there: nothing polls with a pause.
        """
