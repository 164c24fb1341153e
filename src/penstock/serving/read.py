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

A read of more than `PARTITIONS_AT_ONCE_MAX` partitions is planned, read and put together some
partitions at a time (`net.turn.begin`): others are served in between. From its beginning it is the
one that its session's partitions tell of changes, so none is missed. A partition is registered in
the same step in which it is planned, and what changes after that is for the next request.

Large ranges are given as regions of files. What has to be read or checked before is read on the
event loop if the page cache has it, and in a worker thread if that would wait for the disk, if much
of it is encrypted, or if a follower that catches up fetches much at a time. Owned by the event
loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from penstock.auth.principal import Principal
from penstock.auth.types import Operation
from penstock.base.errors import (
    ApiError,
    CorruptRecord,
    ErrorCode,
    InvariantBroken,
    StorageError,
)
from penstock.base.ids import TopicKey
from penstock.base.results import PartitionData
from penstock.base.steps import Steps
from penstock.log.limits import SEALED_ON_LOOP_BYTES_MAX
from penstock.log.slice import LogSlice
from penstock.net.turn import begin
from penstock.partitions.partition import Partition
from penstock.partitions.replica_manager import ReplicaManager
from penstock.partitions.replication_quota import ReplicationQuota
from penstock.partitions.turns import Turns
from penstock.serving.leader_hints import LeaderHints
from penstock.serving.read_ahead import Found, ReadAhead, next_read
from penstock.serving.read_in_flight import (
    FOLLOWER_READ_BYTES_MAX,
    ReadInFlight,
    ReadRequest,
    ReadResult,
)
from penstock.serving.read_plan import (
    NOTHING_PLANNED,
    NOTHING_REFUSED,
    PartitionRead,
    ReadParams,
    ReadPlanner,
    divergence_of,
)
from penstock.serving.read_session import (
    PARTITIONS_AT_ONCE_MAX,
    FetchPartition,
)
from penstock.serving.rights import TOPIC_DENIED, Rights

log = logging.getLogger("penstock.serving")

T = TypeVar("T")

COLD_READERS: Final = 2
PARTITIONS_PER_STEP: Final = 8
"""Partitions that are handled before others may run; their logs may have to be opened."""


_READ: Final = Operation.READ
STARTING: Final = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the node is starting")
_NOT_READ: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)


class ReadService:
    def __init__(
        self,
        replicas: ReplicaManager,
        turns: Turns,
        planner: ReadPlanner,
        quota: ReplicationQuota,
        hints: LeaderHints,
        rights: Rights,
    ) -> None:
        """`quota` is that of throttled followers."""
        self._rights = rights
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
        self._waits = True  # until the node stops
        self._stopped = False

    @property
    def corrupt_reads(self) -> int:
        return self._planner.corrupt_reads

    def read(self, request: ReadRequest, done: Callable[[ReadResult], None]) -> ReadInFlight | None:
        """Have `done` called with the result. Returns the read if it is parked: it can be ended or
        cancelled early.
        """
        context = request.context
        session = context.session
        if session.parked is not None:
            session.parked.end_of_wait()  # the client has given that request up
        read = ReadInFlight(self, request, done)
        params = read.params
        if params.visibility != session.visibility:
            session.set_visibility(params.visibility)
        if len(session.partitions) > PARTITIONS_AT_ONCE_MAX and context.is_wide:
            return self._begin_wide(read)
        refused = NOTHING_REFUSED
        if self._rights.active:
            refused = self._denied(request.principal, params, context.to_check())
        if params.is_follower and not refused:
            refused = self._note_progress(context.to_check(), params)
        parts, found, urgent, _ = self._planner.plan(context.to_check(), params, refused)
        parts = self._registered(read, parts, requests=1)
        read.found(found)
        if found >= params.min_bytes or params.max_wait_ms <= 0 or urgent or not session.partitions:
            self._read(read, parts)
            return None
        read.park(self._loop, parts)
        if not self._waits:
            read.end_of_wait()
            return None
        return read

    def _denied(
        self, principal: Principal, params: ReadParams, to_check: list[FetchPartition]
    ) -> Mapping[FetchPartition, ApiError]:
        """The partitions that the principal may not read; of one that poses as a follower, all."""
        rights = self._rights
        if not rights.is_loaded and not rights.sees_all(principal):
            # The node starts: what ACLs allow is not known yet, and it leads nothing.
            return dict.fromkeys(to_check, STARTING)
        if params.is_follower:
            if rights.cluster(principal, Operation.CLUSTER_ACTION):
                return NOTHING_REFUSED
            return dict.fromkeys(to_check, TOPIC_DENIED)
        return {
            wanted: TOPIC_DENIED
            for wanted in to_check
            if not rights.topic(principal, _READ, wanted.topic)
        }

    def _note_progress(
        self, to_check: list[FetchPartition], params: ReadParams
    ) -> Mapping[FetchPartition, ApiError]:
        """Note a follower's progress at its partitions; the errors of those that refuse it."""
        refused: dict[FetchPartition, ApiError] = {}
        outer, self._collecting = self._collecting, True
        try:
            for wanted in to_check:
                try:
                    partition = self._replicas.leader_of(wanted.topic, wanted.index)
                    self._note_at(partition, wanted, params)
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

    def _registered(
        self, read: ReadInFlight, parts: list[PartitionRead], requests: int = 0
    ) -> list[PartitionRead]:
        """Register the session for changes after the plan, and count the `requests` at their
        partitions; those to answer with.
        """
        session, incremental = read.context.session, read.context.incremental
        registers = session.id or session.parked is read
        kept = []
        for part in parts:
            wanted, partition = part.wanted, part.partition
            wanted.touched = False
            if partition is not None:
                partition.counters.fetch_requests += requests
                wanted.seen_bytes = partition.log.bytes_in
                if partition.log.log_end_offset > part.high_watermark:
                    read.note_unreadable()
                if registers and partition.stopped is None:
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

    def count_again(self, read: ReadInFlight) -> None:
        """Have the read know how many bytes it would find now."""
        if read.context.is_wide:
            read.counts_again()
            begin(self._guarded(read, self._count_in_steps(read)))
        else:
            read.found(self._planner.plan(read.context.to_check(), read.params).found)

    def finish_wait(self, read: ReadInFlight) -> None:
        """End the wait with what is there now."""
        if read.usage is None:
            self._finish_wait(read)
        else:
            read.usage.timed(self._finish_wait, read)

    def _finish_wait(self, read: ReadInFlight) -> None:
        context = read.context
        if context.is_wide:
            begin(self._guarded(read, self._finish_wait_in_steps(read)))
            return
        parts, found, _, _ = self._planner.plan(context.to_check(), read.params)
        read.found(found)
        self._read(read, self._registered(read, parts))

    def end_waiting(self) -> None:
        """End every parked read with what is there, and those that follow."""
        self._waits = False
        for partition in self._replicas.open_partitions():
            partition.wake_all()
        self._drain()

    def stop(self) -> None:
        self._stopped = True
        self._cold_readers.shutdown()

    # -- many partitions -------------------------------------------------------------------------

    def _begin_wide(self, read: ReadInFlight) -> ReadInFlight | None:
        read.context.session.parked = read
        begin(self._guarded(read, self._read_in_steps(read)))
        return None if read.is_over else read

    def _guarded(self, read: ReadInFlight, steps: Steps[None]) -> Steps[None]:
        """`steps`, for which nobody waits: the client is told if they fail."""
        try:
            yield from steps
        except Exception:
            log.exception("a read of many partitions failed unexpectedly")
            read.fail()

    def _read_in_steps(self, read: ReadInFlight) -> Steps[None]:
        """As `read`."""
        plan = NOTHING_PLANNED
        parts: list[PartitionRead] = []
        session = read.context.session
        for to_check in _some_at_a_time(read.context.to_check()):
            refused = NOTHING_REFUSED
            if self._rights.active:
                refused = self._denied(read.principal, read.params, to_check)
            if read.params.is_follower and not refused:
                refused = self._note_progress(to_check, read.params)
            plan = self._planner.plan(to_check, read.params, refused, plan)
            if session.parked is read and not read.may_wait(plan):
                read.unpark()  # what is planned from here on need not wake it
            parts += self._registered(read, plan.parts, requests=1)
            yield
            if read.is_over:
                return
        read.found_in_turns(plan.found)
        if read.may_wait(plan) and session.partitions:
            read.park(self._loop, parts)
            if not self._waits:
                read.end_of_wait()
            elif read.has_moved:
                self.wake(read)
        else:
            read.unpark()
            self._read(read, parts)

    def _finish_wait_in_steps(self, read: ReadInFlight) -> Steps[None]:
        """As `finish_wait`."""
        plan = NOTHING_PLANNED
        parts: list[PartitionRead] = []
        for to_check in _some_at_a_time(read.context.to_check()):
            plan = self._planner.plan(to_check, read.params, before=plan)
            parts += self._registered(read, plan.parts)
            yield
            if read.is_over:
                return
        read.found(plan.found)
        self._read(read, parts)

    def _count_in_steps(self, read: ReadInFlight) -> Steps[None]:
        """As `count_again`."""
        plan = NOTHING_PLANNED
        for to_check in _some_at_a_time(read.context.to_check()):
            plan = self._planner.plan(to_check, read.params, before=plan)
            yield
            if read.is_over:
                return
        read.counted(plan.found)

    def _take_in_steps(self, read: ReadInFlight, parts: list[PartitionRead]) -> Steps[None]:
        """As `_read`."""
        records: list[Found] = []
        for some in _some_at_a_time(parts):
            if not self._take_all(some, records):
                self._read_in_worker(read, parts)
                return
            yield
            if read.is_over:
                return
        self._finish(read, parts, records)

    def _finish_in_steps(
        self, read: ReadInFlight, parts: list[PartitionRead], records: list[Found]
    ) -> Steps[None]:
        """As `_finish`."""
        places: dict[TopicKey, list[PartitionData]] = {}
        for at in range(0, len(parts), PARTITIONS_PER_STEP):
            some = slice(at, at + PARTITIONS_PER_STEP)
            self._collect(read, parts[some], records[some], places)
            yield
            if read.is_over:
                return
        read.is_wide = True
        read.finish()
        if read.catches_up:
            self._read_ahead(read, parts)

    # -- reading --------------------------------------------------------------------------------

    def _read(self, read: ReadInFlight, parts: list[PartitionRead]) -> None:
        if read.must_read_in_worker(parts):
            self._read_for_follower(read, parts)
            return
        if len(parts) > PARTITIONS_AT_ONCE_MAX:
            begin(self._guarded(read, self._take_in_steps(read, parts)))
            return
        records: list[Found] = []
        if self._take_all(parts, records):
            self._finish(read, parts, records)
        else:
            self._read_in_worker(read, parts)

    def _take_all(self, parts: list[PartitionRead], records: list[Found]) -> bool:
        """Add what is to be sent of `parts` to `records`; whether the page cache has all of it, and
        not too much of it is encrypted.
        """
        sealed = 0
        for part in parts:
            if part.slice is not None and part.slice.file.seal is not None:
                sealed += part.slice.size
                if sealed > SEALED_ON_LOOP_BYTES_MAX:
                    return False
            try:
                records.append(_take(part))
            except BlockingIOError:
                self.cold_reads += 1
                return False
            if part.slice is not None and part.slice.nears_the_unread() and not self._stopped:
                self._loop.run_in_executor(self._cold_readers, part.slice.read_ahead)
        return True

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

    def _read_ahead(self, read: ReadInFlight, parts: list[PartitionRead]) -> None:
        session = read.context.session
        if not session.id or self._stopped:
            return
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
        if read.usage is not None and read.throttled([_size(found) for found in records]):
            return
        if len(parts) > PARTITIONS_AT_ONCE_MAX:
            begin(self._guarded(read, self._finish_in_steps(read, parts, records)))
            return
        self._collect(read, parts, records, {})
        read.finish()
        if read.catches_up:
            self._read_ahead(read, parts)

    def _collect(
        self,
        read: ReadInFlight,
        parts: list[PartitionRead],
        records: list[Found],
        places: dict[TopicKey, list[PartitionData]],
    ) -> None:
        """Add what was found to the result, whose partitions lie in `places` by their topic."""
        context, params = read.context, read.params
        session = context.session
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
        missing = code in _NOT_READ
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


def _some_at_a_time(all_of_them: list[T]) -> Iterator[list[T]]:
    for at in range(0, len(all_of_them), PARTITIONS_PER_STEP):
        yield all_of_them[at : at + PARTITIONS_PER_STEP]


def _size(found: Found) -> int:
    return 0 if isinstance(found, (CorruptRecord, StorageError)) else len(found)


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
