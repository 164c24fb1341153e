"""One read between its request and its result: what it has found, and its wait for more.

A read is parked as long as there is too little for it; `serving.read` says when, wakes it and ends
it. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING

from penstock.auth.principal import Principal
from penstock.auth.usage import Usage
from penstock.base.results import TopicData
from penstock.partitions.waiting import CHANGED, RELEASED
from penstock.serving.read_plan import PartitionRead, ReadParams, ReadPlan
from penstock.serving.read_session import ReadContext

if TYPE_CHECKING:
    from penstock.serving.read import ReadService

FOLLOWER_READ_BYTES_MAX = 256 * 1024
"""A follower's request for more is read in a worker thread."""


class ReadRequest:
    """What to read, and for which principal. Immutable."""

    __slots__ = ("context", "params", "principal", "usage")

    def __init__(
        self,
        principal: Principal,
        context: ReadContext,
        params: ReadParams,
        usage: Usage | None,
    ) -> None:
        """`usage`: None where no quotas apply."""
        self.principal = principal
        self.context = context
        self.params = params
        self.usage = usage


class ReadResult:
    """What was found."""

    __slots__ = (
        "error_codes",
        "failed",
        "is_wide",
        "leaders",
        "session_id",
        "session_is_new",
        "throttle_ms",
        "topics",
        "waits_since_ns",
    )

    def __init__(self) -> None:
        self.session_id = 0
        self.topics: TopicData = []
        self.error_codes: list[int] = []
        self.leaders: set[int] = set()
        """The new leaders of partitions that are not led here any more."""
        self.waits_since_ns = 0
        """When the read began to wait; 0 if it did not."""
        self.is_wide = False
        """Whether it has so many partitions that others are to be served while it is encoded."""
        self.throttle_ms = 0
        """How long the client has to wait before its next request: it is given nothing in this, so
        a session that is new must not be: the client would miss its partitions.
        """
        self.session_is_new = False
        self.failed = False
        """Whether something went wrong that must not: there is nothing to answer."""


class ReadInFlight(ReadResult):
    """A read between its request and its result."""

    __slots__ = (
        "_arrived",
        "_counting",
        "_done",
        "_found",
        "_overdue",
        "_released",
        "_service",
        "_timer",
        "context",
        "params",
        "principal",
        "usage",
    )

    def __init__(
        self, service: ReadService, request: ReadRequest, done: Callable[[ReadResult], None]
    ) -> None:
        super().__init__()
        self._service = service
        self._done: Callable[[ReadResult], None] | None = done
        self.context = request.context
        self.params = request.params
        self.principal = request.principal
        self.usage = None if request.params.is_follower else request.usage
        if self.usage is not None:
            self.params = request.params.within(self.usage.fetch_bytes_max())
        self._found = 0  # bytes that the plan found
        self._arrived = 0  # bytes since
        self._released = False  # older data may have become readable since
        self._counting = False  # what is readable is being counted again, in turns
        self._overdue = False  # to end now, however little there is
        self._timer: asyncio.TimerHandle | None = None

    def found(self, size: int) -> None:
        """So many bytes are readable."""
        self._found, self._arrived = size, 0

    @property
    def has_moved(self) -> bool:
        """Whether something has arrived since it was planned."""
        return self._arrived > 0

    def found_in_turns(self, size: int) -> None:
        """Likewise; what arrived meanwhile may be counted twice, which only ends a wait early."""
        self._found = size

    def may_wait(self, plan: ReadPlan) -> bool:
        """Whether there is too little in it, and time left for more to arrive."""
        params = self.params
        return (
            plan.found < params.min_bytes
            and params.max_wait_ms > 0
            and not plan.urgent
            and not self._overdue
        )

    @property
    def is_over(self) -> bool:
        """Whether the result was given, or is not wanted any more."""
        return self._done is None

    def note_unreadable(self) -> None:
        """There is data that the reader may not see yet: it counts when that changes."""
        self._released = True

    # -- waiting -------------------------------------------------------------------------------

    def park(self, loop: asyncio.AbstractEventLoop, parts: list[PartitionRead]) -> None:
        self.waits_since_ns = monotonic_ns()
        self._timer = loop.call_later(self.params.max_wait_ms / 1000, self.end_of_wait)
        session = self.context.session
        session.parked = self
        if not session.id:
            for part in parts:
                if part.partition is not None:
                    part.wanted.attach(part.partition)

    def moved(self, came: int, why: int) -> None:
        self._arrived += came or 1  # older data has become readable
        if why == CHANGED:
            self._overdue = True
        elif why == RELEASED:
            self._released = True
        self._service.wake(self)

    def woken(self) -> None:
        """At the end of a turn in which something has moved: end, if there is enough."""
        if self._timer is None:
            return
        if self._released and not self._overdue and not self._counting:
            # What was not committed, or was held back by a transaction, counts from now on.
            self._released = False
            if self.params.min_bytes > 1:
                self._service.count_again(self)
        if self._overdue or self._found + self._arrived >= self.params.min_bytes:
            self.end_of_wait()

    def counts_again(self) -> None:
        """What is readable is being counted, in turns; to be followed by `counted`."""
        self._counting, self._arrived = True, 0

    def counted(self, size: int) -> None:
        self._counting = False
        self.found_in_turns(size)
        self._service.wake(self)

    def end_of_wait(self) -> None:
        if self._timer is not None:
            self.unpark()
            self._service.finish_wait(self)
        else:
            self._overdue = True  # it is still being planned, in turns

    def cancel(self) -> None:
        """The result is not wanted any more."""
        self._done = None  # no request may lie in a cycle
        self.unpark()
        if not self.context.session.id:
            self.context.session.close()

    def unpark(self) -> None:
        """It does not wait (any more)."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        session = self.context.session
        if session.parked is self:
            session.parked = None
        if not session.id:
            for wanted in session.partitions.values():
                wanted.detach()

    # -- ending --------------------------------------------------------------------------------

    @property
    def catches_up(self) -> bool:
        """Whether a follower fetches so much that it is not read on the event loop."""
        return self.params.is_follower and self._found > FOLLOWER_READ_BYTES_MAX

    def must_read_in_worker(self, parts: list[PartitionRead]) -> bool:
        if not self.catches_up:
            return False
        return any(part.slice is not None and not part.slice.fresh for part in parts)

    def finish(self) -> None:
        """Give the result; a session that is only this request's ends."""
        session = self.context.session
        self.session_id = session.id
        self.session_is_new = not self.context.incremental
        done, self._done = self._done, None
        if done is None:
            pass
        elif self.usage is None:
            done(self)
        else:
            self.usage.timed(done, self)
        if not session.id:
            session.close()

    def throttled(self, found: list[int]) -> bool:
        """Whether the client has to wait instead of getting `found`, so many bytes of each
        partition; then it is over.
        """
        if self.usage is None:
            return False
        self.throttle_ms = self.usage.fetched(sum(found))
        if self.throttle_ms:
            self.finish()
        return self.throttle_ms > 0

    def fail(self) -> None:
        self.failed = True
        self.unpark()
        self.finish()
