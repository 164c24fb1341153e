"""One ShareFetch between its request and its answer: what it found, what was acknowledged with it,
and its wait for more.

It is answered when both its records and its acknowledgements are settled. `serving.share_read` says
when it waits, wakes it and ends it. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from time import monotonic_ns
from typing import TYPE_CHECKING, NamedTuple

from penstock.auth.principal import Principal
from penstock.auth.usage import Usage
from penstock.base.errors import ApiError
from penstock.serving.share_acks import Acknowledging, Place
from penstock.serving.share_driver import ShareDriver
from penstock.share.partition import Acquired, AcquireMode
from penstock.share.session import ShareSession
from penstock.share.types import ShareKey
from penstock.wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse

if TYPE_CHECKING:
    from penstock.serving.share_read import ShareReads


class ShareFetch(NamedTuple):
    """A request, and by which connection it came: with that the session of its member ends."""

    principal: Principal
    body: ShareFetchRequest
    version: int
    connection: Hashable
    usage: Usage | None


class ShareFetchResult:
    """The answer."""

    __slots__ = ("failed", "leaders", "response", "throttle_ms", "waits_since_ns")

    def __init__(self) -> None:
        self.response = ShareFetchResponse()
        self.leaders: set[int] = set()
        """The new leaders of partitions that are not led here any more."""
        self.throttle_ms = 0
        self.waits_since_ns = 0
        """When it began to wait; 0 if it did not."""
        self.failed = False
        """Whether something went wrong that must not: there is nothing to answer."""


class Given(NamedTuple):
    """What the member gets of one partition."""

    records: bytes | memoryview = b""
    acquired: list[Acquired] = []  # noqa: RUF012
    error: ApiError | None = None


class ShareParams(NamedTuple):
    """What holds for all partitions of a request."""

    member_id: str
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    mode: AcquireMode
    read_committed: bool


class ShareFetchInFlight(ShareFetchResult):
    __slots__ = (
        "_again",
        "_checking",
        "_done",
        "_fetched",
        "_overdue",
        "_reads",
        "_timer",
        "acks",
        "drivers",
        "found",
        "metered",
        "params",
        "session",
        "usage",
    )

    def __init__(
        self,
        reads: ShareReads,
        params: ShareParams,
        session: ShareSession,
        usage: Usage | None,
        done: Callable[[ShareFetchInFlight], None],
    ) -> None:
        super().__init__()
        self._reads = reads
        self._done: Callable[[ShareFetchInFlight], None] | None = done
        self.params = params
        self.session = session
        self.usage = usage
        self.acks = Acknowledging(self._finish_if_settled)
        self.drivers: dict[ShareDriver, None] = {}
        """Those it fetches from, in the order in which they are served."""
        self.found: dict[Place, Given] = {}
        self.metered = False
        """Whether its quotas have been asked."""
        self._fetched = False
        self._checking = False
        self._again = False
        self._overdue = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_over(self) -> bool:
        """Whether it was answered, or its answer is not wanted any more."""
        return self._done is None

    @property
    def is_last_try(self) -> bool:
        """Whether it is to be answered with what is there, however little."""
        return self._overdue or self.params.max_wait_ms <= 0

    def hurry(self) -> None:
        """There is something that the client has to know now."""
        self._overdue = True

    # -- as a waiter of partitions and share-partitions ----------------------------------------

    @property
    def read_committed(self) -> bool:
        return self.params.read_committed

    def moved(self, bytes_in: int, why: int) -> None:
        self.wake()

    def left(self) -> None:
        self.wake()

    def wake(self) -> None:
        if self._checking:
            self._again = True
        elif self._timer is not None:
            self._reads.check_soon(self)

    # -- waiting -------------------------------------------------------------------------------

    def watch(self, driver: ShareDriver) -> None:
        self.drivers[driver] = None
        driver.waiting[self] = None
        driver.partition.readers.add(self, follower=False)

    def unwatch(self, driver: ShareDriver) -> None:
        self.drivers.pop(driver, None)
        driver.waiting.pop(self, None)
        driver.partition.readers.remove(self)

    def refuse(self, key: ShareKey, error: ApiError) -> None:
        self.found[key.topic_id, key.partition] = Given(error=error)

    def begins_check(self) -> bool:
        """Have what moves from now on known to the check; False if there is one already."""
        if self._checking or self._fetched:
            return False
        self._checking, self._again = True, False
        return True

    def check_again(self) -> bool:
        """There is too little to answer; whether something has moved during the check."""
        again, self._again = self._again, False
        self._checking = again
        return again

    def park(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is None:
            self.waits_since_ns = self.waits_since_ns or monotonic_ns()
            self._timer = loop.call_later(self.params.max_wait_ms / 1000, self.end_of_wait)

    def end_of_wait(self) -> None:
        """Answer with what is there."""
        self._overdue = self._again = True
        self._stop_timer()
        self._reads.check(self)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def unpark(self) -> None:
        self._reads.unparked(self)
        self._stop_timer()
        for driver in list(self.drivers):
            self.unwatch(driver)

    # -- ending --------------------------------------------------------------------------------

    def fetched(self) -> None:
        """The records are settled: those it got, or why not."""
        self._fetched = True
        self.unpark()
        self._finish_if_settled()

    def _finish_if_settled(self) -> None:
        if self._fetched and self.acks.is_over:
            self._finish()

    def _finish(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(self)

    def supersede(self) -> None:
        """The member has sent another request: this one gets no records any more."""
        if not self._checking and not self._fetched:
            self.fetched()

    def cancel(self) -> None:
        """The answer is not wanted any more; acknowledgements are written all the same."""
        self._done = None
        self._fetched = True
        self.unpark()

    def fail(self) -> None:
        self.failed = True
        self.unpark()
        self._finish()
