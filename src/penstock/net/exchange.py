"""A request that has started on a connection, until its answer is with the transport.

Made by whoever handles the request; it takes its place in the connection's order at once. Owned by
the event loop's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, TypeAlias

from penstock.auth.usage import Usage
from penstock.net.answer_stream import Part
from penstock.observe.requests import RequestTimes

if TYPE_CHECKING:
    from penstock.net.connection import Connection

Answer: TypeAlias = bytes | list[Part]


class Exchange(RequestTimes):
    """A request that has started, and the place of its answer in the connection's order."""

    __slots__ = (
        "answer",
        "connection",
        "correlation_id",
        "done",
        "on_abandoned",
        "on_followed",
        "usage",
        "version",
    )

    def __init__(
        self,
        connection: Connection,
        api_key: int,
        version: int,
        correlation_id: int,
        received_ns: int,
    ) -> None:
        # The base's own constructor is a call that every request would pay for.
        self.api_key = api_key
        self.received_ns = received_ns
        self.started_ns = monotonic_ns()
        self.local_done_ns = self.ready_ns = self.sent_ns = 0
        self.connection = connection
        self.version = version
        self.correlation_id = correlation_id
        self.on_abandoned: Callable[[], None] | None = None
        """Called when the connection ends before the answer is there."""
        self.on_followed: Callable[[], None] | None = None
        """Called when the peer sends another request behind this one: it need not wait on."""
        self.answer: Answer | deque[Part] | None = None
        """Once regions of it are on their way: what is left."""
        self.done = False
        self.usage: Usage | None = None
        """What counts for the quotas of a client, if there are any."""
        connection.pending.append(self)

    def park(self) -> None:
        """The local work is done; the answer waits for something else."""
        self.local_done_ns = monotonic_ns()

    def finish(self, answer: Answer | None) -> None:
        """Hand over the framed answer; None for a request that gets none (acks=0)."""
        if self.done:
            return
        self.answer = answer
        self.done = True
        self.on_abandoned = self.on_followed = None  # no request may lie in a cycle
        connection = self.connection
        if connection.pending and connection.pending[0] is self:
            connection.drain()
