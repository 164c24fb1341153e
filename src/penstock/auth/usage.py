"""What one request uses: the time of the event loop, and the bytes that come in or go out.

A door gets a `Usage` for each request while there are quotas, and hands it on with the request.
Whoever works for the request says so between `enter` and `leave`; work for another request in
between counts for that one alone. The services ask it how long the client has to wait, and the door
carries that out.

What a request takes after that was decided, such as the sending of its answer, counts for the next
one. Time in worker threads does not count, nor a write that the requests of many share. Owned by
the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from penstock.auth.throttling import Mutations, Throttling
from penstock.base.clock import Clock

R = TypeVar("R")

NS_PER_S: Final = 1_000_000_000


class LoopTime:
    """For whose request the loop works, and since when."""

    __slots__ = ("_clock", "_since_ns", "_usage")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._usage: Usage | None = None
        self._since_ns = 0

    def now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def switch(self, usage: Usage | None) -> Usage | None:
        """The loop works for this request from now on; returns the one that it worked for."""
        now_ns = int(self._clock.monotonic() * NS_PER_S)
        before = self._usage
        if before is not None:
            before.spent_ns += now_ns - self._since_ns
        self._usage, self._since_ns = usage, now_ns
        return before

    def settle(self) -> None:
        """Have what was spent so far in `spent_ns`."""
        self.switch(self._usage)


class Usage:
    """That of one request of a user's client."""

    __slots__ = (
        "_client_id",
        "_decided",
        "_size",
        "_throttling",
        "_time",
        "_user",
        "spent_ns",
    )

    def __init__(
        self, throttling: Throttling, time: LoopTime, user: str, client_id: str, size: int
    ) -> None:
        """The request came in `size` bytes."""
        self._throttling = throttling
        self._time = time
        self._user = user
        self._client_id = client_id
        self._size = size
        self._decided = False
        self.spent_ns = 0
        """Of the loop's time, that does not count yet."""

    # -- the loop's time -----------------------------------------------------------------------

    def enter(self) -> Usage | None:
        """The loop begins to work for this request; give what it returns to `leave`."""
        return self._time.switch(self)

    def leave(self, before: Usage | None) -> None:
        self._time.switch(before)
        if self._decided and before is not self and self.spent_ns:
            spent_ns, self.spent_ns = self.spent_ns, 0
            self._throttling.sent(self._user, self._client_id, spent_ns, self._time.now_ms())

    def timed(self, work: Callable[..., R], *given: Any) -> R:
        """Do the work for this request."""
        before = self.enter()
        try:
            return work(*given)
        finally:
            self.leave(before)

    # -- how long the client has to wait, in milliseconds --------------------------------------

    def produced(self, *, acks: bool) -> int:
        """The records of the request were taken in; with `acks` there is an answer."""
        spent_ns = self._spent()
        return self._throttling.produced(
            self._user, self._client_id, self._size, spent_ns, self._time.now_ms(), acks=acks
        )

    def fetched(self, size: int) -> int:
        """`size` bytes of records are about to be given; none may be if the client has to wait."""
        spent_ns = self._spent()
        now_ms = self._time.now_ms()
        return self._throttling.fetched(self._user, self._client_id, size, spent_ns, now_ms)

    def fetch_bytes_max(self) -> int:
        """How much may be given at once."""
        return self._throttling.fetch_bytes_max(self._user, self._client_id, self._time.now_ms())

    def requested(self) -> int:
        """Any other request is about to be answered."""
        spent_ns = self._spent()
        now_ms = self._time.now_ms()
        return self._throttling.request_time(self._user, self._client_id, spent_ns, now_ms)

    def _spent(self) -> int:
        self._time.settle()
        spent_ns, self.spent_ns = self.spent_ns, 0
        self._decided = True
        return spent_ns


class TimedMutations:
    """The mutations of one request to the controller, by the node's clock."""

    __slots__ = ("_mutations", "_time")

    def __init__(self, mutations: Mutations, time: LoopTime) -> None:
        self._mutations = mutations
        self._time = time

    def admit(self, partitions: int) -> bool:
        """Whether so many more may be created or deleted."""
        return self._mutations.admit(partitions, self._time.now_ms())

    def throttle_ms(self) -> int:
        """How long the client has to wait."""
        return self._mutations.throttle_ms(self._time.now_ms())
