"""Reading for share groups: the records that a member may have, or that come while it waits.

A fetch holds the share-partitions from which it may acquire something, finds their records (whole
batches, from the next offset of each on), and acquires what it was given of them. If there is too
little it lets go and is parked: what may give it more wakes it (the readable end of a partition, a
share-partition where something has become available, was loaded or was dropped). `max_wait` ends
that in any case.

One fetch at a time reads for a share-partition. Each gets an equal part of `max_bytes`; the first
batch of the first that has data is given whole. Records are never decoded: batch headers alone are
looked at, for where batches begin and which of them were aborted.

Limits: `max_bytes` and `max_records` of the request, `fetch.max.bytes` of the node,
`READ_BYTES_MAX` of one partition at a time. Many partitions are handled with others in between
(`net.turn.begin`); what the page cache does not have is read by a worker thread. Owned by the event
loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias

from penstock.base.errors import (
    ApiError,
    CorruptRecord,
    ErrorCode,
    InvariantBroken,
    PenstockError,
    StorageError,
)
from penstock.base.steps import Steps
from penstock.log.index import AbortedTxn
from penstock.log.limits import SEALED_ON_LOOP_BYTES_MAX
from penstock.log.slice import LogSlice
from penstock.net.turn import begin
from penstock.serving.share_batches import aborted_ranges, batches_in, covering
from penstock.serving.share_driver import ShareDriver, State
from penstock.serving.share_in_flight import Given, ShareFetchInFlight
from penstock.serving.share_partitions import SharePartitions
from penstock.share.partition import without
from penstock.share.session import ShareSessions
from penstock.share.types import ShareKey

log = logging.getLogger("penstock.serving")

COLD_READERS: Final = 2
READ_BYTES_MAX: Final = 1024 * 1024
"""Of one partition at a time, unless its first batch is larger: it is read in one piece."""
READ_BYTES_MIN: Final = 64 * 1024
RECORDS_AHEAD: Final = 2
"""For how many times the records that may be acquired there is room: sizes differ."""

Data: TypeAlias = "bytes | memoryview"


class _Part:
    """What is read for one share-partition that a fetch holds."""

    __slots__ = ("aborted", "data", "driver", "error", "offset", "slice")

    def __init__(self, driver: ShareDriver) -> None:
        self.driver = driver
        self.offset = 0
        self.slice: LogSlice | None = None
        self.aborted: list[AbortedTxn] = []
        self.data: Data = b""
        self.error: ApiError | None = None

    @property
    def sealed_bytes(self) -> int:
        """How much of it is encrypted."""
        return 0 if self.slice is None or self.slice.file.seal is None else self.slice.size

    def read(self, *, nowait: bool) -> None:
        """In any thread. BlockingIOError if the page cache does not have it."""
        if self.slice is None:
            return
        try:
            self.data = self.slice.read(nowait=nowait)
        except CorruptRecord as damage:
            self.error = ApiError(ErrorCode.CORRUPT_MESSAGE, str(damage))
        except StorageError as failure:
            self.error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))


class ShareReads:
    def __init__(
        self, partitions: SharePartitions, sessions: ShareSessions, max_bytes: Callable[[], int]
    ) -> None:
        """`max_bytes` is the node's limit of an answer."""
        self._partitions = partitions
        self._sessions = sessions
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._cold_readers = ThreadPoolExecutor(COLD_READERS, thread_name_prefix="cold-share-read")
        self._woken: dict[ShareFetchInFlight, None] = {}
        self._parked: dict[ShareFetchInFlight, None] = {}
        self._waits = True  # until the node stops

    def stop(self) -> None:
        self._cold_readers.shutdown()

    def end_waiting(self) -> None:
        """End every parked fetch with what is there, and those that follow."""
        self._waits = False
        for flight in list(self._parked):
            flight.end_of_wait()

    # -- when to look --------------------------------------------------------------------------

    def fetch(self, flight: ShareFetchInFlight, keys: list[ShareKey]) -> Steps[None]:
        """Fetch from these share-partitions, in this order."""
        flight.begins_check()
        for key in keys:
            try:
                flight.watch(self._partitions.opened(key))
            except ApiError as e:
                flight.refuse(key, e)
            yield
            if flight.is_over:
                flight.unpark()
                return
        if flight.drivers:
            yield from self._check(flight)
        else:
            flight.fetched()

    def check_soon(self, flight: ShareFetchInFlight) -> None:
        """Something has moved for a parked fetch: check it when all that moves now has moved."""
        if not self._woken:
            self._loop.call_soon(self._check_woken)
        self._woken[flight] = None

    def _check_woken(self) -> None:
        woken, self._woken = self._woken, {}
        for flight in woken:
            if not flight.is_over:
                self.check(flight)

    def check(self, flight: ShareFetchInFlight) -> None:
        if flight.begins_check():
            steps = self.guarded(flight, self._check(flight))
            if flight.usage is None:
                begin(steps)
            else:
                flight.usage.timed(begin, steps)

    def guarded(self, flight: ShareFetchInFlight, steps: Steps[None]) -> Steps[None]:
        """`steps`, for which nobody waits: the client is told if they fail."""
        try:
            yield from steps
        except Exception:
            log.exception("a fetch of a share group failed unexpectedly")
            flight.fail()

    def _check(self, flight: ShareFetchInFlight) -> Steps[None]:
        """Answer, if there is enough or the time is over; else wait."""
        while True:
            parts: list[_Part] = []
            try:
                yield from self._hold(flight, parts)
                enough = yield from self._plan(flight, parts)
                if enough or flight.is_last_try or flight.is_over or not self._waits:
                    reading, parts = parts, []
                    yield from self._read(flight, reading)
                    return
            finally:
                for part in parts:
                    part.driver.let_go()
            if not flight.check_again():
                break
        self._parked[flight] = None
        flight.park(self._loop)

    def unparked(self, flight: ShareFetchInFlight) -> None:
        self._parked.pop(flight, None)

    # -- what there is -------------------------------------------------------------------------

    def _hold(self, flight: ShareFetchInFlight, parts: list[_Part]) -> Steps[None]:
        """Hold the share-partitions from which something may be acquired."""
        member_id = flight.params.member_id
        for driver in list(flight.drivers):
            if driver.error is not None:
                flight.unwatch(driver)
                flight.refuse(driver.key, driver.error)
                if driver.state is State.FENCED:
                    flight.hurry()  # what failed to load would only fail again
            elif driver.may_acquire(member_id, self._members(driver)) and driver.hold(flight):
                parts.append(_Part(driver))
            yield
            if flight.is_over:
                return

    def _members(self, driver: ShareDriver) -> int:
        key = driver.key
        return self._sessions.members_of(key.group_id, key.topic_id, key.partition)

    def _plan(self, flight: ShareFetchInFlight, parts: list[_Part]) -> Steps[bool]:
        """Find what is to be read; whether it is enough to answer."""
        params = flight.params
        each = min(params.max_bytes, self._max_bytes()) // max(len(parts), 1)
        size = 0
        urgent = False
        for part in parts:
            try:
                if part.driver.is_active:
                    self._find(part, flight, each, min_one=not size)
            except ApiError as e:
                # Beyond the end of a log that has lost its end: there is nothing until it grows.
                part.error = None if e.code == ErrorCode.OFFSET_OUT_OF_RANGE else e
            except CorruptRecord as damage:
                part.error = ApiError(ErrorCode.CORRUPT_MESSAGE, str(damage))
            except (StorageError, InvariantBroken) as failure:
                if isinstance(failure, InvariantBroken):
                    part.driver.partition.stop(str(failure))
                part.error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
            urgent = urgent or part.error is not None
            if part.slice is not None:
                size += part.slice.size
            yield
        return urgent or (size > 0 and size >= params.min_bytes)

    def _find(self, part: _Part, flight: ShareFetchInFlight, limit: int, *, min_one: bool) -> None:
        driver, params = part.driver, flight.params
        partition = driver.partition
        log_ = partition.log
        end = partition.last_stable_offset if params.read_committed else partition.high_watermark
        offset = part.offset = driver.fetch_offset
        if offset >= end or (limit <= 0 and not min_one):
            return
        wanted = driver.record_bytes * params.max_records * RECORDS_AHEAD or READ_BYTES_MAX
        limit = min(limit, READ_BYTES_MAX, max(wanted, READ_BYTES_MIN))
        part.slice = log_.read(offset, limit, up_to_offset=end, min_one=min_one)
        if params.read_committed and part.slice is not None:
            above = min(end, log_.segments.offset_above(part.slice, log_.log_end_offset))
            part.aborted = log_.aborted_transactions(offset, above)

    # -- reading -------------------------------------------------------------------------------

    def _read(self, flight: ShareFetchInFlight, parts: list[_Part]) -> Steps[None]:
        try:
            here = yield from self._read_here(flight, parts)
            if not here and not flight.is_over:
                work = self._loop.run_in_executor(self._cold_readers, _read_cold, parts)
                work.add_done_callback(lambda done: self._read_done(flight, parts, done))
                return
        except BaseException:
            for part in parts:
                part.driver.let_go()
            raise
        yield from self._acquire(flight, parts)

    def _read_here(self, flight: ShareFetchInFlight, parts: list[_Part]) -> Steps[bool]:
        """Whether the page cache has all of it, and not too much of it is encrypted."""
        sealed = sum(part.sealed_bytes for part in parts)
        if sealed > SEALED_ON_LOOP_BYTES_MAX:
            return False
        for part in parts:
            try:
                part.read(nowait=True)
            except BlockingIOError:
                return False
            yield
            if flight.is_over:
                break
        return True

    def _read_done(
        self, flight: ShareFetchInFlight, parts: list[_Part], done: asyncio.Future[None]
    ) -> None:
        if done.exception() is not None:
            log.error("a read failed unexpectedly", exc_info=done.exception())
            error = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the records could not be read")
            for part in parts:
                part.error = part.error or error
        begin(self.guarded(flight, self._acquire(flight, parts)))

    def _acquire(self, flight: ShareFetchInFlight, parts: list[_Part]) -> Steps[None]:
        """Give the member what it may have of what was read."""
        left = list(reversed(parts))
        try:
            if flight.usage is not None and not flight.is_over:
                flight.metered = True
                flight.throttle_ms = flight.usage.fetched(sum(len(part.data) for part in parts))
            records = flight.params.max_records
            while left:
                part = left.pop()
                if not flight.is_over and not flight.throttle_ms:
                    records -= self._take(flight, part, records)
                part.driver.let_go()
                yield
        finally:
            for part in left:
                part.driver.let_go()
        if not flight.is_over:
            flight.fetched()

    def _take(self, flight: ShareFetchInFlight, part: _Part, max_records: int) -> int:
        """How many records the member has acquired of a share-partition."""
        driver = part.driver
        key, counters = driver.key, driver.partition.counters
        counters.fetch_requests += 1
        error = part.error or driver.error
        if error is not None:
            counters.failed_fetch_requests += 1
            flight.refuse(key, error)
            return 0
        try:
            given = self._acquired(flight, part, max_records)
        except PenstockError as e:
            log.exception("records of %r cannot be acquired", driver)
            driver.fence(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(e)))
            flight.refuse(key, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
            return 0
        counters.bytes_out += len(given.records)
        flight.found[key.topic_id, key.partition] = given
        return sum(last - first + 1 for first, last, _ in given.acquired)

    def _acquired(self, flight: ShareFetchInFlight, part: _Part, max_records: int) -> Given:
        driver, params, data = part.driver, flight.params, part.data
        batches = batches_in(data)
        if not batches.offsets or max_records <= 0:
            return Given()
        first, last = batches.offsets[0][0], batches.offsets[-1][1]
        driver.record_bytes = max(len(data) // (last - first + 1), 1)
        acquired = driver.acquire(
            params.member_id,
            batches.offsets,
            fetch_offset=part.offset,
            max_records=max_records,
            batch_size=params.batch_size,
            mode=params.mode,
            members=self._members(driver),
        )
        if part.aborted:
            ranges = aborted_ranges(data, batches, part.aborted)
            if ranges:
                driver.archive(ranges)
                acquired = without(acquired, ranges)
        if not acquired:
            return Given()
        return Given(covering(data, batches, acquired), acquired)


def _read_cold(parts: list[_Part]) -> None:
    """Read from the disk, then have it read ahead."""
    for part in parts:
        part.read(nowait=False)
    for part in parts:
        if part.slice is not None:
            part.slice.read_ahead()
