"""What a peer's protocol gives to the load of a queue: each message goes to one consumer, which
acknowledges it.

As with `wire.py` the load knows sockets and time, and a wire knows its protocol. A `QueueConsumer`
belongs to one connection and acknowledges what it was given with its next request, all of it at
once. What was delivered is kept, so that a case can be checked when it is over: nothing twice,
nothing missing, and everything acknowledged.
"""

from __future__ import annotations

import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .wire import PeerError, Received

DRAINED_S_MAX = 20.0
DRAINED_POLL_S = 0.05


class Asking(NamedTuple):
    """How much a consumer takes at once."""

    one: bool
    """A single message; else as much as its client does by default."""


BY_DEFAULT = Asking(one=False)
ONE = Asking(one=True)


class QueueConsumer(ABC):
    """Takes messages on one connection, and acknowledges them."""

    first: bytes | bytearray
    """What is sent to begin."""
    is_over: bool = False
    """Whether nothing more comes after `end`."""
    acknowledged: int = 0
    """Messages whose acknowledgement the server has answered; where a protocol has no answer to it,
    those whose acknowledgement was handed out to be sent."""

    @abstractmethod
    def received(self, data: memoryview) -> Received:
        """Takes what arrived; the reply acknowledges it and asks for more. `data` is valid during
        the call only.
        """

    @abstractmethod
    def end(self) -> bytes:
        """It takes no more than it is being given now; what is to be sent for it at once."""


class QueueWire(ABC):
    """Queues of one server."""

    @abstractmethod
    def make(self, queue: str) -> None:
        """Makes it, empty."""

    @abstractmethod
    def remove(self, queue: str) -> None:
        """Deletes it with all that it holds."""

    @abstractmethod
    def fill(self, queue: str, messages: int, *, size: int, per_batch: int) -> int:
        """Has the queue hold at least so many messages of `size` bytes; how many it holds.

        `per_batch` are published as one batch, where there are batches.
        """

    @abstractmethod
    def consumers(
        self, queue: str, socks: Sequence[socket.socket], asking: Asking
    ) -> Sequence[QueueConsumer]:
        """A consumer on each of the connections (connected, blocking), which share the queue."""

    @abstractmethod
    def check(self, queue: str, consumers: Sequence[QueueConsumer], filled: int) -> None:
        """Raises PeerError unless what was delivered was so once, and the queue holds all that was
        not acknowledged and nothing else. The connections are closed.
        """


def await_left(held: Callable[[], int], left: int) -> None:
    """Returns when a queue holds so many messages; acknowledgements may be on their way."""
    deadline = time.monotonic() + DRAINED_S_MAX
    while (found := held()) != left:
        if time.monotonic() > deadline:
            raise PeerError(f"the queue holds {found} messages; {left} are not acknowledged")
        time.sleep(DRAINED_POLL_S)
