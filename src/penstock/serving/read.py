"""Reading: what is there at once, or what comes within the time that the reader is willing to wait.

`read` takes a plain request and calls `done` once. The result is there at once when it found
`min_bytes`, an error, or may not wait. Otherwise the read is parked: its session is registered at
its partitions, and one whose readable end moves (the high watermark for consumers, the log's end
for followers) wakes it. The reads that were woken by the writes of a turn, or by a follower's
progress, are judged once, after all of them (`_drain`): enough has come in, and the read ends; or
it waits on. `max_wait` ends the waiting in any case.

A follower's request says how far its log goes. That is noted at the leader before anything is
looked at: it may commit records and let the follower join the in-sync set.

Limits: `max_bytes` of the request, `fetch.max.bytes` of the node, `partition_max_bytes`. The
first batch of the first partition that has data is given whole even when it is larger, so that a
reader always moves on.

Large pieces are given as regions of files. What has to be read or checked before is read on the
event loop when the page cache has it, and in a worker thread when that would have to wait for the
disk, or when a follower that catches up takes much of it at a time.
Owned by the event loop's thread.
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
from penstock.serving.look import NOTHING_REFUSED, Look, Looker, ReadParams, parting
from penstock.serving.read_ahead import Found, ReadAhead, next_read
from penstock.serving.read_session import FetchPartition, FetchSession, ReadContext

log = logging.getLogger("penstock.serving")

COLD_READERS: Final = 2
FOLLOWER_READ_BYTES_MAX = 256 * 1024
"""More than this a follower's request does not read on the event loop."""


class ReadRequest:
    """What to read, and for whom. Not changed once it is made."""

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
        """The brokers that lead partitions which have moved."""
        self.waits_since_ns = 0
        """When the read began to wait; 0 if it did not."""


class ReadInFlight(ReadResult):
    """A read between its request and its result."""

    __slots__ = (
        "_came",
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
        self._found = 0  # bytes the last look found
        self._came = 0  # bytes that have come in since
        self._released = False  # what came in before may have become readable since
        self._overdue = False  # to end now, however little there is
        self._timer: asyncio.TimerHandle | None = None

    def found(self, size: int) -> None:
        """A look has found so many bytes."""
        self._found, self._came = size, 0

    def sees_not_all(self) -> None:
        """There is more than the reader may see, and it will count when that changes."""
        self._released = True

    # -- waiting -------------------------------------------------------------------------------

    def park(self, loop: asyncio.AbstractEventLoop, looks: list[Look]) -> None:
        self.waits_since_ns = monotonic_ns()
        self._timer = loop.call_later(self.params.max_wait_ms / 1000, self.end_of_wait)
        session = self.context.session
        session.parked = self
        if not session.id:
            for look in looks:
                if look.partition is not None:
                    look.wanted.attach(look.partition)

    def moved(self, came: int, why: int) -> None:
        self._came += came or 1  # what had come in before has become readable
        if why == CHANGED:
            self._overdue = True
        elif why == RELEASED:
            self._released = True
        self._service.wake(self)

    def woken(self) -> None:
        """At the end of a turn in which something has moved: end, if it is worth it."""
        if self._timer is None:
            return
        if self._released and not self._overdue:
            # What was not committed, or was held back by a transaction, counts from now on.
            self._released = False
            if self.params.min_bytes > 1:
                self.found(self._service.readable(self))
        if self._overdue or self._found + self._came >= self.params.min_bytes:
            self.end_of_wait()

    def end_of_wait(self) -> None:
        if self._timer is not None:
            self._unpark()
            self._service.finish_wait(self)

    def cancel(self) -> None:
        """Nobody wants the result any more."""
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
        """Whether so much is asked by a follower that it is not read on the event loop."""
        return self.params.is_follower and self._found > FOLLOWER_READ_BYTES_MAX

    def must_read_beside(self, looks: list[Look]) -> bool:
        if not self.catches_up:
            return False
        return any(look.slice is not None and not look.slice.fresh for look in looks)

    def finish(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(self)


class ReadService:
    """Takes requests, gives results."""

    def __init__(
        self,
        replicas: ReplicaManager,
        turns: Turns,
        looker: Looker,
        quota: ReplicationQuota,
        hints: LeaderHints,
    ) -> None:
        """`quota` is that of throttled followers."""
        self._replicas = replicas
        self._turns = turns
        self._looker = looker
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
        return self._looker.corrupt_reads

    def read(self, request: ReadRequest, done: Callable[[ReadResult], None]) -> ReadInFlight | None:
        """Have `done` called with what is found. The read, if it waits: it can be ended or
        cancelled before its time.
        """
        session, params = request.context.session, request.params
        if session.parked is not None:
            session.parked.end_of_wait()  # the client has given that request up
        if params.sight != session.sight:
            session.look_with(params.sight)
        refused = self._note_progress(request) if params.is_follower else NOTHING_REFUSED
        read = ReadInFlight(self, request, done)
        looks, found, urgent = self._looker.look(read.context, params, refused)
        for look in looks:
            if look.partition is not None:
                look.partition.counters.fetch_requests += 1
        looks = self._registered(read, looks)
        read.found(found)
        if found >= params.min_bytes or params.max_wait_ms <= 0 or urgent or not session.partitions:
            self._read(read, looks)
            return None
        read.park(self._loop, looks)
        return read

    def _note_progress(self, request: ReadRequest) -> dict[FetchPartition, ApiError]:
        """Note at the partitions how far a follower is; those where it is none."""
        refused: dict[FetchPartition, ApiError] = {}
        outer, self._collecting = self._collecting, True
        try:
            for wanted in request.context.to_look_at():
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
        agrees = parting(partition, wanted) is None
        if not agrees or not log_.log_start_offset <= offset <= log_.log_end_offset:
            return
        try:
            partition.follower_fetched(
                params.replica_id, offset, wanted.log_start_offset, params.broker_epoch
            )
        except InvariantBroken as e:
            partition.stop(str(e))

    def _registered(self, read: ReadInFlight, looks: list[Look]) -> list[Look]:
        """Have the session told of what happens after the looks; those that are to be answered."""
        session, incremental = read.context.session, read.context.incremental
        kept = []
        for look in looks:
            wanted, partition = look.wanted, look.partition
            wanted.touched = False
            if partition is not None:
                wanted.seen_bytes = partition.log.bytes_in
                if partition.log.log_end_offset > look.high_watermark:
                    read.sees_not_all()
                if session.id and partition.stopped is None:
                    wanted.attach(partition)
            if incremental and look.quiet:
                session.dirty.pop(wanted, None)
            else:
                kept.append(look)
        return kept

    # -- waiting -------------------------------------------------------------------------------

    def wake(self, read: ReadInFlight) -> None:
        """Something has moved for a parked read: judge it when all that moves now has moved."""
        waits = self._woken or self._collecting
        self._woken[read] = None
        # The next turn of the loop would be later by all the requests that are read before.
        if not waits and not self._turns.after_writes(self._drain):
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        if self._collecting:
            return  # the caller below goes on
        self._collecting = True
        try:
            while self._woken:
                # All at a time: to find the first of a dict, again and again, costs the square.
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
        return self._looker.look(read.context, read.params).found

    def finish_wait(self, read: ReadInFlight) -> None:
        """Give the read what is there now."""
        looks, found, _ = self._looker.look(read.context, read.params)
        read.found(found)
        self._read(read, self._registered(read, looks))

    def end_waiting(self) -> None:
        """End every parked read with what is there."""
        for partition in self._replicas.open_partitions():
            partition.wake_all()
        self._drain()

    def stop(self) -> None:
        self._stopped = True
        self._cold_readers.shutdown()

    # -- reading --------------------------------------------------------------------------------

    def _read(self, read: ReadInFlight, looks: list[Look]) -> None:
        if read.must_read_beside(looks):
            self._read_for_follower(read, looks)
            return
        records: list[Found] = []
        for look in looks:
            try:
                records.append(_take(look))
            except BlockingIOError:
                self.cold_reads += 1
                self._read_beside(read, looks)
                return
            if look.slice is not None and look.slice.nears_the_unread() and not self._stopped:
                self._loop.run_in_executor(self._cold_readers, look.slice.read_ahead)
        self._finish(read, looks, records)

    def _read_for_follower(self, read: ReadInFlight, looks: list[Look]) -> None:
        """Read beside the loop, unless that has been done ahead."""
        session = read.context.session
        ahead, session.ahead = session.ahead, None
        if ahead is not None and ahead.takes(looks):
            ahead.work.add_done_callback(lambda done: self._read_ahead_done(read, looks, done))
        else:
            self._read_beside(read, looks)

    def _read_ahead_done(
        self, read: ReadInFlight, looks: list[Look], done: asyncio.Future[Found]
    ) -> None:
        if done.exception() is None:
            found = done.result()
            self._finish(read, looks, [b"" if look.slice is None else found for look in looks])
        else:
            self._read_failed(read, looks, done)

    def _read_ahead(self, session: FetchSession, looks: list[Look]) -> None:
        foreseen = next_read(session, looks)
        if foreseen is None or foreseen.slice.fresh:
            return
        if foreseen.slice.size > FOLLOWER_READ_BYTES_MAX:
            work = self._loop.run_in_executor(self._cold_readers, _read_slice, foreseen.slice)
            session.ahead = ReadAhead(foreseen, work)

    def _read_beside(self, read: ReadInFlight, looks: list[Look]) -> None:
        """Read beside the loop, so that others go on."""
        work = self._loop.run_in_executor(self._cold_readers, _read_cold, looks)
        work.add_done_callback(lambda done: self._read_done(read, looks, done))

    def _read_done(
        self, read: ReadInFlight, looks: list[Look], done: asyncio.Future[list[Found]]
    ) -> None:
        if done.exception() is None:
            self._finish(read, looks, done.result())
        else:
            self._read_failed(read, looks, done)

    def _read_failed(
        self, read: ReadInFlight, looks: list[Look], done: asyncio.Future[Any]
    ) -> None:
        log.error("a read failed unexpectedly", exc_info=done.exception())
        error = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the records could not be read")
        for look in looks:
            look.error = look.error or error
        self._finish(read, looks, [b""] * len(looks))

    def _finish(self, read: ReadInFlight, looks: list[Look], records: list[Found]) -> None:
        context, params = read.context, read.params
        session = context.session
        places: dict[TopicKey, list[PartitionData]] = {}
        for look, found in zip(looks, records, strict=True):
            data = self._partition_data(look, found, params)
            wanted = look.wanted
            if session.id:
                if not _settle(wanted, data, look) and context.incremental:
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
            self._read_ahead(session, looks)

    def _partition_data(self, look: Look, found: Found, params: ReadParams) -> PartitionData:
        if isinstance(found, CorruptRecord):
            look.error = self._looker.corrupt(found)
        elif isinstance(found, StorageError):
            look.error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(found))
        partition = look.partition
        if look.error is not None or partition is None or isinstance(found, StorageError):
            return self._error_data(look, params)
        if params.is_follower:
            partition.counters.replication_bytes_out += len(found)
            self._quota.record(partition, len(found))
        else:
            partition.counters.bytes_out += len(found)
        diverging_epoch, diverging_end = look.diverging or (-1, -1)
        return PartitionData(
            look.wanted.index,
            0,
            look.high_watermark,
            look.last_stable_offset,
            look.log_start_offset,
            look.aborted,
            found,
            diverging_epoch=diverging_epoch,
            diverging_end_offset=diverging_end,
            preferred_read_replica=look.preferred,
        )

    def _error_data(self, look: Look, params: ReadParams) -> PartitionData:
        if look.partition is not None:
            look.partition.counters.failed_fetch_requests += 1
        code = look.error.code if look.error is not None else ErrorCode.UNKNOWN_SERVER_ERROR
        # As Kafka has it: no aborted transactions of what is not there, null with other errors.
        missing = code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
        wanted = look.wanted
        leader = params.hints and self._hints.leader(code, wanted.topic, wanted.index)
        leader_id, leader_epoch = leader or (-1, -1)
        return PartitionData(
            wanted.index,
            code,
            aborted_transactions=() if missing else None,
            leader_id=leader_id,
            leader_epoch=leader_epoch,
        )


def _take(look: Look) -> Found:
    """What the page cache has of it; BlockingIOError if that is not all."""
    try:
        return b"" if look.slice is None else look.slice.to_send(nowait=True)
    except (CorruptRecord, StorageError) as e:
        return e


def _read_cold(looks: list[Look]) -> list[Found]:
    """Wait for the disk, which is then asked for what will be wanted next."""
    found = [b"" if look.slice is None else _read_slice(look.slice) for look in looks]
    for look in looks:
        if look.slice is not None:
            look.slice.read_ahead()
    return found


def _read_slice(wanted: LogSlice) -> Found:
    try:
        return wanted.to_send()
    except (CorruptRecord, StorageError) as e:
        return e


def _settle(wanted: FetchPartition, data: PartitionData, look: Look) -> bool:
    """Whether `data` is news to the session's client; what then need not be looked at again."""
    news = wanted.has_news(data)
    # A slice without a whole batch had too little room: it gave nothing, and yet there is more.
    if look.slice is None and not (look.urgent or look.more or wanted.touched):
        assert wanted.session is not None
        wanted.session.dirty.pop(wanted, None)
    return news
