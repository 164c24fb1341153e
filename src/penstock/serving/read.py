"""Reading: the records that are there, or that arrive within the time that the reader waits.

`read` takes a plain request and calls `done` once. It does so immediately when it found
`min_bytes` or an error, or may not wait. Otherwise the read is parked: its session is registered at
its partitions, which wake it when the readable end moves (the high watermark for consumers, the
log's end for followers). The reads that were woken by the writes of a turn, or by a follower's
progress, are checked once, after all of them (`_drain`): if enough has arrived the read ends, if
not it stays parked. `max_wait` ends it in any case.

A follower's request tells how far its log goes. The leader notes that first: it may commit records
and let the follower join the in-sync set.

Limits: `max_bytes` of the request, `fetch.max.bytes` of the node, `partition_max_bytes`. The
first batch of the first partition that has data is given whole even when it is larger, so that a
reader always makes progress.

Large ranges are given as regions of files. What has to be read or checked before is read on the
event loop if the page cache has it, and in a worker thread if that would wait for the disk, or if
a follower that catches up fetches much at a time. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic_ns
from typing import Any, Final

from penstock.base.errors import (
    ApiError,
    CorruptRecord,
    ErrorCode,
    InvariantBroken,
    StorageError,
)
from penstock.base.ids import TopicKey
from penstock.base.results import PartitionData, TopicData
from penstock.log.slice import LogSlice
from penstock.partitions.partition import Partition
from penstock.partitions.replica_manager import ReplicaManager
from penstock.partitions.replication_quota import ReplicationQuota
from penstock.partitions.turns import Turns
from penstock.partitions.waiting import CHANGED, RELEASED
from penstock.serving.leader_hints import LeaderHints
from penstock.serving.read_ahead import Found, ReadAhead, next_read
from penstock.serving.read_plan import (
    NOTHING_REFUSED,
    PartitionRead,
    ReadParams,
    ReadPlanner,
    divergence_of,
)
from penstock.serving.read_session import FetchPartition, FetchSession, ReadContext

log = logging.getLogger("penstock.serving")

COLD_READERS: Final = 2
FOLLOWER_READ_BYTES_MAX = 256 * 1024
"""A follower's request for more is read in a worker thread."""


class ReadRequest:
    """What to read, and for which principal. Immutable."""

    __slots__ = ("context", "params", "principal")

    def __init__(self, principal: str, context: ReadContext, params: ReadParams) -> None:
        self.principal = principal
        self.context = context
        self.params = params


class ReadResult:
    """What was found."""

    __slots__ = ("error_codes", "leaders", "session_id", "topics", "waits_since_ns")

    def __init__(self) -> None:
        self.session_id = 0
        self.topics: TopicData = []
        self.error_codes: list[int] = []
        self.leaders: set[int] = set()
        """The new leaders of partitions that are not led here any more."""
        self.waits_since_ns = 0
        """When the read began to wait; 0 if it did not."""


class ReadInFlight(ReadResult):
    """A read between its request and its result."""

    __slots__ = (
        "_arrived",
        "_done",
        "_found",
        "_overdue",
        "_released",
        "_service",
        "_timer",
        "context",
        "params",
    )

    def __init__(
        self, service: ReadService, request: ReadRequest, done: Callable[[ReadResult], None]
    ) -> None:
        super().__init__()
        self._service = service
        self._done: Callable[[ReadResult], None] | None = done
        self.context = request.context
        self.params = request.params
        self._found = 0  # bytes that the plan found
        self._arrived = 0  # bytes since
        self._released = False  # older data may have become readable since
        self._overdue = False  # to end now, however little there is
        self._timer: asyncio.TimerHandle | None = None

    def found(self, size: int) -> None:
        """So many bytes are readable."""
        self._found, self._arrived = size, 0

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
        if self._released and not self._overdue:
            # What was not committed, or was held back by a transaction, counts from now on.
            self._released = False
            if self.params.min_bytes > 1:
                self.found(self._service.readable(self))
        if self._overdue or self._found + self._arrived >= self.params.min_bytes:
            self.end_of_wait()

    def end_of_wait(self) -> None:
        if self._timer is not None:
            self._unpark()
            self._service.finish_wait(self)

    def cancel(self) -> None:
        """The result is not wanted any more."""
        self._done = None  # no request may lie in a cycle
        self._unpark()
        if not self.context.session.id:
            self.context.session.close()

    def _unpark(self) -> None:
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
        done, self._done = self._done, None
        if done is not None:
            done(self)


class ReadService:
    def __init__(
        self,
        replicas: ReplicaManager,
        turns: Turns,
        planner: ReadPlanner,
        quota: ReplicationQuota,
        hints: LeaderHints,
    ) -> None:
        """`quota` is that of throttled followers."""
        self._replicas = replicas
        self._turns = turns
        self._planner = planner
        self._quota = quota
        self._hints = hints
        self._loop = asyncio.get_running_loop()
        self._cold_readers = ThreadPoolExecutor(COLD_READERS, thread_name_prefix="cold-read")
        self._woken: dict[ReadInFlight, None] = {}
        self._collecting = False  # more reads may be woken: they are judged after that
        self.cold_reads = 0
        self._stopped = False

    @property
    def corrupt_reads(self) -> int:
        return self._planner.corrupt_reads

    def read(self, request: ReadRequest, done: Callable[[ReadResult], None]) -> ReadInFlight | None:
        """Have `done` called with the result. Returns the read if it is parked: it can be ended or
        cancelled early.
        """
        session, params = request.context.session, request.params
        if session.parked is not None:
            session.parked.end_of_wait()  # the client has given that request up
        if params.visibility != session.visibility:
            session.set_visibility(params.visibility)
        refused = self._note_progress(request) if params.is_follower else NOTHING_REFUSED
        read = ReadInFlight(self, request, done)
        parts, found, urgent = self._planner.plan(read.context, params, refused)
        for part in parts:
            if part.partition is not None:
                part.partition.counters.fetch_requests += 1
        parts = self._registered(read, parts)
        read.found(found)
        if found >= params.min_bytes or params.max_wait_ms <= 0 or urgent or not session.partitions:
            self._read(read, parts)
            return None
        read.park(self._loop, parts)
        return read

    def _note_progress(self, request: ReadRequest) -> dict[FetchPartition, ApiError]:
        """Note a follower's progress at its partitions; the errors of those that refuse it."""
        refused: dict[FetchPartition, ApiError] = {}
        outer, self._collecting = self._collecting, True
        try:
            for wanted in request.context.to_check():
                try:
                    partition = self._replicas.leader_of(wanted.topic, wanted.index)
                    self._note_at(partition, wanted, request.params)
                except ApiError as e:
                    refused[wanted] = e
        finally:
            self._collecting = outer
            self._drain()
        return refused

    def _note_at(self, partition: Partition, wanted: FetchPartition, params: ReadParams) -> None:
        partition.check_leader_epoch(wanted.current_leader_epoch)
        partition.check_replica(params.replica_id)
        offset, log_ = wanted.fetch_offset, partition.log
        agrees = divergence_of(partition, wanted) is None
        if not agrees or not log_.log_start_offset <= offset <= log_.log_end_offset:
            return
        try:
            partition.follower_fetched(
                params.replica_id, offset, wanted.log_start_offset, params.broker_epoch
            )
        except InvariantBroken as e:
            partition.stop(str(e))

    def _registered(self, read: ReadInFlight, parts: list[PartitionRead]) -> list[PartitionRead]:
        """Register the session for changes after the plan; the partitions to answer with."""
        session, incremental = read.context.session, read.context.incremental
        kept = []
        for part in parts:
            wanted, partition = part.wanted, part.partition
            wanted.touched = False
            if partition is not None:
                wanted.seen_bytes = partition.log.bytes_in
                if partition.log.log_end_offset > part.high_watermark:
                    read.note_unreadable()
                if session.id and partition.stopped is None:
                    wanted.attach(partition)
            if incremental and part.quiet:
                session.dirty.pop(wanted, None)
            else:
                kept.append(part)
        return kept

    # -- waiting -------------------------------------------------------------------------------

    def wake(self, read: ReadInFlight) -> None:
        """Something has moved for a parked read: check it when all that moves now has moved."""
        waits = self._woken or self._collecting
        self._woken[read] = None
        # The next turn of the loop would be later by all the requests that are read before.
        if not waits and not self._turns.after_writes(self._drain):
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        if self._collecting:
            return  # the caller below continues
        self._collecting = True
        try:
            while self._woken:
                # All at a time: taking the first of a dict again and again is quadratic.
                turn = list(self._woken)
                self._woken.clear()
                for read in turn:
                    read.woken()
        finally:
            self._collecting = False
            if self._woken:  # one has failed
                self._loop.call_soon(self._drain)

    def readable(self, read: ReadInFlight) -> int:
        """The bytes that a parked read would find now."""
        return self._planner.plan(read.context, read.params).found

    def finish_wait(self, read: ReadInFlight) -> None:
        """End the wait with what is there now."""
        parts, found, _ = self._planner.plan(read.context, read.params)
        read.found(found)
        self._read(read, self._registered(read, parts))

    def end_waiting(self) -> None:
        """End every parked read with what is there."""
        for partition in self._replicas.open_partitions():
            partition.wake_all()
        self._drain()

    def stop(self) -> None:
        self._stopped = True
        self._cold_readers.shutdown()

    # -- reading --------------------------------------------------------------------------------

    def _read(self, read: ReadInFlight, parts: list[PartitionRead]) -> None:
        if read.must_read_in_worker(parts):
            self._read_for_follower(read, parts)
            return
        records: list[Found] = []
        for part in parts:
            try:
                records.append(_take(part))
            except BlockingIOError:
                self.cold_reads += 1
                self._read_in_worker(read, parts)
                return
            if part.slice is not None and part.slice.nears_the_unread() and not self._stopped:
                self._loop.run_in_executor(self._cold_readers, part.slice.read_ahead)
        self._finish(read, parts, records)

    def _read_for_follower(self, read: ReadInFlight, parts: list[PartitionRead]) -> None:
        """Read in a worker thread, unless that was done ahead."""
        session = read.context.session
        ahead, session.ahead = session.ahead, None
        if ahead is not None and ahead.takes(parts):
            ahead.work.add_done_callback(lambda done: self._read_ahead_done(read, parts, done))
        else:
            self._read_in_worker(read, parts)

    def _read_ahead_done(
        self, read: ReadInFlight, parts: list[PartitionRead], done: asyncio.Future[Found]
    ) -> None:
        if done.exception() is None:
            found = done.result()
            self._finish(read, parts, [b"" if part.slice is None else found for part in parts])
        else:
            self._read_failed(read, parts, done)

    def _read_ahead(self, session: FetchSession, parts: list[PartitionRead]) -> None:
        foreseen = next_read(session, parts)
        if foreseen is None or foreseen.slice.fresh:
            return
        if foreseen.slice.size > FOLLOWER_READ_BYTES_MAX:
            work = self._loop.run_in_executor(self._cold_readers, _read_slice, foreseen.slice)
            session.ahead = ReadAhead(foreseen, work)

    def _read_in_worker(self, read: ReadInFlight, parts: list[PartitionRead]) -> None:
        work = self._loop.run_in_executor(self._cold_readers, _read_cold, parts)
        work.add_done_callback(lambda done: self._read_done(read, parts, done))

    def _read_done(
        self, read: ReadInFlight, parts: list[PartitionRead], done: asyncio.Future[list[Found]]
    ) -> None:
        if done.exception() is None:
            self._finish(read, parts, done.result())
        else:
            self._read_failed(read, parts, done)

    def _read_failed(
        self, read: ReadInFlight, parts: list[PartitionRead], done: asyncio.Future[Any]
    ) -> None:
        log.error("a read failed unexpectedly", exc_info=done.exception())
        error = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the records could not be read")
        for part in parts:
            part.error = part.error or error
        self._finish(read, parts, [b""] * len(parts))

    def _finish(self, read: ReadInFlight, parts: list[PartitionRead], records: list[Found]) -> None:
        context, params = read.context, read.params
        session = context.session
        places: dict[TopicKey, list[PartitionData]] = {}
        for part, found in zip(parts, records, strict=True):
            data = self._partition_data(part, found, params)
            wanted = part.wanted
            if session.id:
                if not _settle(wanted, data, part) and context.incremental:
                    continue
                if data.records:
                    session.served(wanted)
            if data.error_code:
                read.error_codes.append(data.error_code)
            if data.leader_id >= 0:
                read.leaders.add(data.leader_id)
            place = places.get(wanted.topic)
            if place is None:
                place = places[wanted.topic] = []
                read.topics.append((wanted.topic, place))
            place.append(data)
        read.session_id = session.id
        read.finish()
        if not session.id:
            session.close()
        elif read.catches_up and not self._stopped:
            self._read_ahead(session, parts)

    def _partition_data(
        self, part: PartitionRead, found: Found, params: ReadParams
    ) -> PartitionData:
        if isinstance(found, CorruptRecord):
            part.error = self._planner.corrupt(found)
        elif isinstance(found, StorageError):
            part.error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(found))
        partition = part.partition
        if part.error is not None or partition is None or isinstance(found, StorageError):
            return self._error_data(part, params)
        if params.is_follower:
            partition.counters.replication_bytes_out += len(found)
            self._quota.record(partition, len(found))
        else:
            partition.counters.bytes_out += len(found)
        diverging_epoch, diverging_end = part.diverging or (-1, -1)
        return PartitionData(
            part.wanted.index,
            0,
            part.high_watermark,
            part.last_stable_offset,
            part.log_start_offset,
            part.aborted,
            found,
            diverging_epoch=diverging_epoch,
            diverging_end_offset=diverging_end,
            preferred_read_replica=part.preferred,
        )

    def _error_data(self, part: PartitionRead, params: ReadParams) -> PartitionData:
        if part.partition is not None:
            part.partition.counters.failed_fetch_requests += 1
        code = part.error.code if part.error is not None else ErrorCode.UNKNOWN_SERVER_ERROR
        # As in Kafka: an empty list of aborted transactions for unknown partitions, else null.
        missing = code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
        wanted = part.wanted
        leader = params.hints and self._hints.leader(code, wanted.topic, wanted.index)
        leader_id, leader_epoch = leader or (-1, -1)
        return PartitionData(
            wanted.index,
            code,
            aborted_transactions=() if missing else None,
            leader_id=leader_id,
            leader_epoch=leader_epoch,
        )


def _take(part: PartitionRead) -> Found:
    """The records from the page cache; BlockingIOError if it does not have all of them."""
    try:
        return b"" if part.slice is None else part.slice.to_send(nowait=True)
    except (CorruptRecord, StorageError) as e:
        return e


def _read_cold(parts: list[PartitionRead]) -> list[Found]:
    """Read from the disk, then have it read ahead."""
    found = [b"" if part.slice is None else _read_slice(part.slice) for part in parts]
    for part in parts:
        if part.slice is not None:
            part.slice.read_ahead()
    return found


def _read_slice(wanted: LogSlice) -> Found:
    try:
        return wanted.to_send()
    except (CorruptRecord, StorageError) as e:
        return e


def _settle(wanted: FetchPartition, data: PartitionData, part: PartitionRead) -> bool:
    """Whether `data` is news to the session's client; drops the partition from those to check."""
    news = wanted.has_news(data)
    # A slice without a whole batch had too little room: there is more, although it gave nothing.
    if part.slice is None and not (part.urgent or part.more or wanted.touched):
        assert wanted.session is not None
        wanted.session.dirty.pop(wanted, None)
    return news
