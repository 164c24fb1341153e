"""Fetch and FetchSnapshot of the metadata log: the core decides, this module reads the bytes.

A reader that has everything waits for records, for a higher high watermark or for another leader,
up to its max_wait_ms. Its fetch may be passed to the core several times meanwhile; as a sign of
life it counts once, when it arrived. Limits: `max_bytes` of the request; the first batch is sent
whole even when it is larger. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from penstock.base.errors import ErrorCode, StorageError
from penstock.controlling.metadata_snapshots import read_piece
from penstock.raft.effects import Effect
from penstock.raft.fetching import Serve, ServeSnapshot
from penstock.wire.messages.fetch import FetchRequest, FetchResponse
from penstock.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse

if TYPE_CHECKING:
    from penstock.controlling.quorum_driver import QuorumDriver

Done: TypeAlias = Callable[[FetchResponse | None], None]
"""Called with the response; None: the reader has to ask another node."""
State: TypeAlias = tuple[int, int, tuple[int, int]]


class Then(NamedTuple):
    """An effect of the driver itself, to be carried out after those of the core."""

    act: Callable[[], None]


class QuorumFetch:
    """A fetch that is being decided, or waits for news."""

    __slots__ = ("_done", "_fetches", "came_ms", "request", "seen", "timer")

    def __init__(
        self, fetches: QuorumFetches, request: FetchRequest, done: Done, came_ms: int
    ) -> None:
        self._fetches = fetches
        self._done: Done | None = done
        self.request = request
        self.came_ms = came_ms
        self.seen: State | None = None
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_over(self) -> bool:
        return self._done is None

    def finish(self, response: FetchResponse | None) -> None:
        done, self._done = self._done, None  # no request may lie in a cycle
        if done is not None:
            done(response)

    def cancel(self) -> None:
        """The response is not wanted any more."""
        self._done = None
        self._fetches.unpark(self)


class QuorumFetches:
    def __init__(self, driver: QuorumDriver) -> None:
        self._driver = driver
        self._loop = asyncio.get_running_loop()
        self._parked: dict[QuorumFetch, None] = {}
        self._waking = False

    def fetch(self, request: FetchRequest, done: Done) -> QuorumFetch:
        """Have `done` called with the response to `request`, now or when there is news."""
        fetch = QuorumFetch(self, request, done, self._driver.now_ms())
        self._ask(fetch, may_wait=request.max_wait_ms > 0)
        return fetch

    def _ask(self, fetch: QuorumFetch, *, may_wait: bool) -> None:
        def judged(now_ms: int) -> Sequence[Effect | Then]:
            verdict, effects = self._driver.quorum.on_fetch(fetch.request, now_ms, fetch.came_ms)
            if isinstance(verdict, Serve):
                if may_wait and not verdict.has_news:
                    return [*effects, Then(lambda: self._park(fetch))]
                return [*effects, Then(lambda: self._serve(fetch, verdict))]
            return [*effects, Then(lambda: fetch.finish(verdict.response))]

        self._driver.event(judged)

    def _park(self, fetch: QuorumFetch) -> None:
        if fetch.is_over:
            return
        fetch.seen = self._state()
        wait_s = fetch.request.max_wait_ms / 1000
        fetch.timer = self._loop.call_later(wait_s, self._again, fetch)
        self._parked[fetch] = None

    def unpark(self, fetch: QuorumFetch) -> None:
        if fetch.timer is not None:
            fetch.timer.cancel()
        self._parked.pop(fetch, None)

    def _again(self, fetch: QuorumFetch) -> None:
        self.unpark(fetch)
        self._ask(fetch, may_wait=False)

    def _serve(self, fetch: QuorumFetch, verdict: Serve) -> None:
        part = verdict.response.responses[0].partitions[0]
        try:
            if verdict.first < verdict.end_offset:
                part.records = self._driver.log.read(
                    verdict.first, verdict.end_offset, self._max_bytes(fetch.request)
                )
        except StorageError:
            part.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        fetch.finish(verdict.response)

    @staticmethod
    def _max_bytes(request: FetchRequest) -> int:
        return min(request.max_bytes, request.topics[0].partitions[0].partition_max_bytes)

    # -- news ----------------------------------------------------------------------------------

    def _state(self) -> State:
        quorum = self._driver.quorum
        return quorum.log_end_offset, quorum.high_watermark, quorum.leader_and_epoch

    def wake(self) -> None:
        """Something may have changed: answer the waiting fetches in the next turn of the loop."""
        if self._parked and not self._waking:
            self._waking = True
            self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._waking = False
        now = self._state()
        for fetch in [fetch for fetch in self._parked if fetch.seen != now]:
            self.unpark(fetch)
            self._ask(fetch, may_wait=True)

    def stop(self) -> None:
        """Waiting fetches are not answered any more: their connections are closed, and the readers
        try another node.
        """
        for fetch in list(self._parked):
            self.unpark(fetch)
            fetch.finish(None)

    # -- snapshots -----------------------------------------------------------------------------

    def fetch_snapshot(self, request: FetchSnapshotRequest) -> asyncio.Future[Any]:
        """A piece of a snapshot."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def judged(now_ms: int) -> Sequence[Effect | Then]:
            verdict, effects = self._driver.quorum.on_fetch_snapshot(request, now_ms)
            if isinstance(verdict, ServeSnapshot):
                return [*effects, Then(lambda: future.set_result(self._piece(verdict)))]
            return [*effects, Then(lambda: future.set_result(verdict.response))]

        self._driver.event(judged)
        return future

    def _piece(self, verdict: ServeSnapshot) -> FetchSnapshotResponse:
        part = verdict.response.topics[0].partitions[0]
        try:
            log = self._driver.log
            found = read_piece(
                log.dir, verdict.id, verdict.position, verdict.max_bytes, log.encryption.keys
            )
        except StorageError:
            part.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return verdict.response
        if found is None:
            part.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
        elif verdict.position >= found[0]:
            part.error_code = ErrorCode.POSITION_OUT_OF_RANGE
        else:
            part.size, part.unaligned_records = found
        return verdict.response
