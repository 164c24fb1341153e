"""The way of a Fetch request below its codec: read what is there, or wait for it.

A Fetch is answered at once when it found `min_bytes`, an error, or may not wait. Otherwise it is
parked at each of its partitions; a partition whose high watermark moves puts it among the woken,
and at the end of that turn it reads again if enough has come in. `max_wait` ends the waiting in
any case.

Limits: `max_bytes` of the request, `fetch.max.bytes` of the node, `partition_max_bytes`. The
first batch of the first partition that has data is sent whole even when it is larger, so that a
reader always moves on.

Reading is done on the event loop when the page cache has the data and in a worker thread when it
would have to wait for the disk. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

from penstock.base.errors import ApiError, CorruptRecord, ErrorCode, StorageError
from penstock.broker.fetch_session import FetchContext, FetchPartition
from penstock.broker.partition import Partition
from penstock.broker.replica_manager import ReplicaManager
from penstock.log.slice import LogSlice
from penstock.net.connection import Exchange
from penstock.wire.apis import ApiKey
from penstock.wire.fetch_codec import (
    AbortedTransaction,
    PartitionData,
    Records,
    TopicData,
    encode_fetch_response,
)
from penstock.wire.produce_codec import TopicKey

log = logging.getLogger("penstock.broker")

READ_COMMITTED = 1
COLD_READERS = 2

Found: TypeAlias = "Records | CorruptRecord | StorageError"
"""The records of a slice, or why they cannot be served."""


@dataclass(frozen=True, slots=True)
class FetchParams:
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool


class FetchInFlight:
    """One Fetch request between its arrival and its answer."""

    __slots__ = (
        "_bytes_in_when_parked",
        "_fetcher",
        "_timer",
        "context",
        "exchange",
        "found",
        "overdue",
        "params",
    )

    def __init__(
        self, fetcher: Fetcher, exchange: Exchange, context: FetchContext, params: FetchParams
    ) -> None:
        self._fetcher = fetcher
        self.exchange = exchange
        self.context = context
        self.params = params
        self.found = 0  # bytes the last look found
        self.overdue = False  # to be answered now, however little there is
        self._timer: asyncio.TimerHandle | None = None
        self._bytes_in_when_parked: dict[Partition, int] = {}

    def park(self, loop: asyncio.AbstractEventLoop, partitions: list[Partition]) -> None:
        self.exchange.park()
        self.exchange.on_abandoned = self.unpark
        self._timer = loop.call_later(self.params.max_wait_ms / 1000, self.end_of_wait)
        for partition in partitions:
            partition.fetch_waiters.add(self)
            self._bytes_in_when_parked[partition] = partition.log.bytes_in

    def enough(self) -> bool:
        """Whether what came in since parking, with what was found then, is worth an answer."""
        if self.params.min_bytes <= 1 or self.overdue:
            return True
        came = sum(p.log.bytes_in - then for p, then in self._bytes_in_when_parked.items())
        return self.found + came >= self.params.min_bytes

    def end_of_wait(self) -> None:
        self.unpark()
        self._fetcher.answer(self)

    def unpark(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for partition in self._bytes_in_when_parked:
            partition.fetch_waiters.discard(self)
        self._bytes_in_when_parked.clear()


class Look:
    """What there is to say of one partition before its records are read."""

    __slots__ = ("aborted", "error", "partition", "slice", "wanted")

    def __init__(self, wanted: FetchPartition) -> None:
        self.wanted = wanted
        self.partition: Partition | None = None
        self.slice: LogSlice | None = None
        self.aborted: list[AbortedTransaction] | None = None
        self.error: ApiError | None = None


class Fetcher:
    """The node's fetch path: takes decoded requests, gives answers."""

    def __init__(
        self,
        replicas: ReplicaManager,
        max_bytes: int,
        count_error: Callable[[int, int], None],
    ) -> None:
        self._count_error = count_error
        self._replicas = replicas
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._cold_readers = ThreadPoolExecutor(COLD_READERS, thread_name_prefix="cold-read")
        self.woken: set[FetchInFlight] = replicas.woken
        self.corrupt_reads = 0
        self.cold_reads = 0

    def handle(self, exchange: Exchange, context: FetchContext, params: FetchParams) -> None:
        fetch = FetchInFlight(self, exchange, context, params)
        looks = self._look(fetch)
        if (
            fetch.found >= params.min_bytes
            or params.max_wait_ms <= 0
            or not looks
            or any(look.error for look in looks)
        ):
            self._read_and_answer(fetch, looks)
        else:
            fetch.park(self._loop, [look.partition for look in looks if look.partition])

    def answer(self, fetch: FetchInFlight) -> None:
        """Answer with what is there now."""
        self._read_and_answer(fetch, self._look(fetch))

    def run_woken(self) -> None:
        """At the end of a turn: answer the parked fetches for which enough has come in."""
        while self.woken:
            fetch = self.woken.pop()
            if fetch.enough():
                fetch.end_of_wait()

    def answer_all(self) -> None:
        """Answer every parked fetch with what is there."""
        for partition in self._replicas.open_partitions():
            partition.wake_all()
        self.run_woken()

    def stop(self) -> None:
        self._cold_readers.shutdown()

    # -- looking -------------------------------------------------------------------------------

    def _look(self, fetch: FetchInFlight) -> list[Look]:
        params = fetch.params
        room = min(params.max_bytes, self._max_bytes)
        fetch.found = 0
        looks = []
        for wanted in fetch.context.partitions:
            look = Look(wanted)
            looks.append(look)
            try:
                self._look_at(look, params, room, min_one=not fetch.found)
            except ApiError as e:
                look.error = e
            except CorruptRecord as e:
                look.error = self._corrupt(e)
            except StorageError as e:
                look.error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(e))
            if look.slice is not None:
                fetch.found += look.slice.size
                room -= look.slice.size
        return looks

    def _look_at(self, look: Look, params: FetchParams, room: int, *, min_one: bool) -> None:
        wanted = look.wanted
        partition = self._replicas.leader_of(wanted.topic, wanted.index)
        look.partition = partition
        partition.counters.fetch_requests += 1
        partition.check_leader_epoch(wanted.current_leader_epoch)
        log = partition.log
        offset = wanted.fetch_offset
        end = partition.last_stable_offset if params.read_committed else partition.high_watermark
        if end <= offset <= log.log_end_offset:
            if params.read_committed:
                look.aborted = []
            return
        limit = min(wanted.max_bytes, room)
        if limit > 0 or min_one:
            look.slice = log.read(offset, limit, up_to_offset=end, min_one=min_one)
        if params.read_committed:
            look.aborted = [
                AbortedTransaction(txn.producer_id, txn.first_offset)
                for txn in log.aborted_transactions(offset, end)
            ]

    # -- reading and answering -----------------------------------------------------------------

    def _read_and_answer(self, fetch: FetchInFlight, looks: list[Look]) -> None:
        records: list[Found] = []
        for look in looks:
            try:
                records.append(_read(look, nowait=True))
            except BlockingIOError:
                self._read_cold(fetch, looks)
                return
        self._answer(fetch, looks, records)

    def _read_cold(self, fetch: FetchInFlight, looks: list[Look]) -> None:
        """The disk must be asked: do that beside the loop, so that others go on."""
        self.cold_reads += 1
        work = self._loop.run_in_executor(
            self._cold_readers, lambda: [_read(look, nowait=False) for look in looks]
        )
        work.add_done_callback(lambda done: self._cold_read_done(fetch, looks, done))

    def _cold_read_done(
        self, fetch: FetchInFlight, looks: list[Look], done: asyncio.Future[list[Found]]
    ) -> None:
        if done.exception() is None:
            self._answer(fetch, looks, done.result())
        else:
            log.error("a read failed unexpectedly", exc_info=done.exception())
            fetch.exchange.connection.abort()

    def _answer(
        self,
        fetch: FetchInFlight,
        looks: list[Look],
        records: list[Found],
    ) -> None:
        context = fetch.context
        topics: TopicData = []
        places: dict[TopicKey, list[PartitionData]] = {}
        for look, read in zip(looks, records, strict=True):
            data = self._partition_data(look, read)
            wanted = look.wanted
            if context.session is not None:
                if not wanted.has_news(data) and context.incremental:
                    continue
                if data.records:
                    context.session.served((wanted.topic, wanted.index))
            place = places.get(wanted.topic)
            if place is None:
                place = places[wanted.topic] = []
                topics.append((wanted.topic, place))
            place.append(data)
        exchange = fetch.exchange
        exchange.finish(
            encode_fetch_response(
                exchange.correlation_id, exchange.version, 0, context.session_id, topics
            )
        )

    def _partition_data(self, look: Look, read: Found) -> PartitionData:
        partition = look.partition
        index = look.wanted.index
        if isinstance(read, CorruptRecord):
            look.error = self._corrupt(read)
        elif isinstance(read, StorageError):
            look.error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(read))
        if look.error is not None or partition is None or isinstance(read, StorageError):
            if partition is not None:
                partition.counters.failed_fetch_requests += 1
            code = look.error.code if look.error is not None else ErrorCode.UNKNOWN_SERVER_ERROR
            self._count_error(ApiKey.FETCH, code)
            # As Kafka has it: no aborted transactions of what is not there, null with other errors.
            missing = code in (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.UNKNOWN_TOPIC_ID,
            )
            return PartitionData(index, code, aborted_transactions=() if missing else None)
        partition.counters.bytes_out += len(read)
        return PartitionData(
            index,
            0,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log.log_start_offset,
            look.aborted,
            read,
        )

    def _corrupt(self, error: CorruptRecord) -> ApiError:
        self.corrupt_reads += 1  # the log itself has said what and where
        return ApiError(ErrorCode.CORRUPT_MESSAGE, str(error))


def _read(look: Look, *, nowait: bool) -> Found:
    if look.slice is None:
        return b""
    try:
        return look.slice.read(nowait=nowait)
    except (CorruptRecord, StorageError) as e:
        return e
