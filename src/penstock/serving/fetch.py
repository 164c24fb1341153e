"""The way of a Fetch request below its codec: read what is there, or wait for it.

A Fetch is answered at once when it found `min_bytes`, an error, or may not wait. Otherwise it is
parked: its session is registered at its partitions, and one whose readable end moves (the high
watermark for consumers, the log's end for followers) puts it among the woken; at the end of that
turn it reads again if enough has come in. `max_wait` ends the waiting in any case, and so does
another request that the peer sends behind it.

Limits: `max_bytes` of the request, `fetch.max.bytes` of the node, `partition_max_bytes`. The
first batch of the first partition that has data is sent whole even when it is larger, so that a
reader always moves on.

Large pieces go from the page cache to the socket. What has to be read or checked before is so on
the event loop when the page cache has it, and in a worker thread when that would have to wait for
the disk, or when a follower that catches up takes much of it at a time.
Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from penstock.base.errors import ApiError, CorruptRecord, ErrorCode, StorageError
from penstock.log.slice import LogSlice
from penstock.net.connection import Exchange
from penstock.partitions.replica_manager import ReplicaManager
from penstock.serving.fetch_look import FetchParams, Look, Looker
from penstock.serving.fetch_session import FetchContext, FetchPartition, FetchSession
from penstock.serving.leader_hints import LeaderHints
from penstock.serving.read_ahead import Found, ReadAhead, next_read
from penstock.wire.apis import ApiKey
from penstock.wire.fetch_codec import (
    PartitionData,
    TopicData,
    encode_fetch_response,
)
from penstock.wire.produce_codec import TopicKey

log = logging.getLogger("penstock.serving")

COLD_READERS = 2
FOLLOWER_READ_BYTES_MAX = 256 * 1024
"""More than this a follower's request does not read on the event loop."""


class FetchInFlight:
    """One Fetch request between its arrival and its answer."""

    __slots__ = (
        "_fetcher",
        "_timer",
        "came",
        "context",
        "exchange",
        "found",
        "overdue",
        "params",
        "uncounted",
    )

    def __init__(
        self, fetcher: Fetcher, exchange: Exchange, context: FetchContext, params: FetchParams
    ) -> None:
        self._fetcher = fetcher
        self.exchange = exchange
        self.context = context
        self.params = params
        self.found = 0  # bytes the last look found
        self.came = 0  # bytes that have come in since
        self.uncounted = False  # what came in before may have become readable since
        self.overdue = False  # to be answered now, however little there is
        self._timer: asyncio.TimerHandle | None = None

    def park(self, loop: asyncio.AbstractEventLoop, looks: list[Look]) -> None:
        self.exchange.park()
        self.exchange.on_abandoned = self.unpark
        if self.params.is_follower:
            self.exchange.on_followed = self.end_of_wait
        self._timer = loop.call_later(self.params.max_wait_ms / 1000, self.end_of_wait)
        self.context.session.parked = self
        if not self.context.session_id:
            for look in looks:
                if look.partition is not None:
                    look.wanted.attach(look.partition)

    @property
    def catches_up(self) -> bool:
        """Whether so much is asked by a follower that it is not read on the event loop."""
        return self.params.is_follower and self.found > FOLLOWER_READ_BYTES_MAX

    def must_read_beside(self, looks: list[Look]) -> bool:
        if not self.catches_up:
            return False
        return any(look.slice is not None and not look.slice.fresh for look in looks)

    def enough(self) -> bool:
        """Whether what came in since parking, with what was found then, is worth an answer."""
        return self.overdue or self.found + self.came >= self.params.min_bytes

    def end_of_wait(self) -> None:
        if self._timer is not None:
            self.unpark()
            self._fetcher.answer(self)

    def unpark(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Nothing of a request may lie in a cycle: collecting thousands of them takes milliseconds.
        self.exchange.on_abandoned = None
        self.exchange.on_followed = None
        session = self.context.session
        if session.parked is self:
            session.parked = None
        if not session.id:
            for wanted in session.partitions.values():
                wanted.detach()


class Fetcher:
    """The node's fetch path: takes decoded requests, gives answers."""

    def __init__(
        self,
        replicas: ReplicaManager,
        looker: Looker,
        hints: LeaderHints,
        count_error: Callable[[int, int], None],
    ) -> None:
        self._count_error = count_error
        self._replicas = replicas
        self._looker = looker
        self._hints = hints
        self._loop = asyncio.get_running_loop()
        self._cold_readers = ThreadPoolExecutor(COLD_READERS, thread_name_prefix="cold-read")
        self.woken: dict[FetchInFlight, None] = replicas.woken
        self.cold_reads = 0
        self._stopped = False

    @property
    def corrupt_reads(self) -> int:
        return self._looker.corrupt_reads

    def handle(self, exchange: Exchange, context: FetchContext, params: FetchParams) -> None:
        session = context.session
        if session.parked is not None:
            session.parked.end_of_wait()  # the client has given that connection up
        if params.sight != session.sight:
            session.look_with(params.sight)
        fetch = FetchInFlight(self, exchange, context, params)
        looks = self._looker.look(fetch.context, params, arrived=True)
        fetch.found = looks.found
        if (
            looks.found >= params.min_bytes
            or params.max_wait_ms <= 0
            or looks.urgent
            or not session.partitions
        ):
            self._read_and_answer(fetch, looks.looks)
        else:
            fetch.park(self._loop, looks.looks)
        if self.woken:
            self.run_woken()  # a follower's request may have committed what others wait for

    def answer(self, fetch: FetchInFlight) -> None:
        """Answer with what is there now."""
        looks = self._looker.look(fetch.context, fetch.params, arrived=False)
        fetch.found = looks.found
        self._read_and_answer(fetch, looks.looks)

    def run_woken(self) -> None:
        """At the end of a turn: answer the parked fetches for which enough has come in."""
        woken = self.woken
        while woken:
            # All at a time: to look for the first of a dict, again and again, costs the square.
            turn = list(woken)
            woken.clear()
            for fetch in turn:
                if fetch.uncounted and not fetch.overdue:
                    self._count(fetch)
                if fetch.enough():
                    fetch.end_of_wait()

    def _count(self, fetch: FetchInFlight) -> None:
        """A transaction has ended, and what it held back counts for the reader from now on."""
        fetch.uncounted = False
        if fetch.params.min_bytes > 1:
            fetch.found = self._looker.look(fetch.context, fetch.params, arrived=False).found
            fetch.came = 0

    def answer_all(self) -> None:
        """Answer every parked fetch with what is there."""
        for partition in self._replicas.open_partitions():
            partition.wake_all()
        self.run_woken()

    def stop(self) -> None:
        self._stopped = True
        self._cold_readers.shutdown()

    # -- reading and answering -----------------------------------------------------------------

    def _read_and_answer(self, fetch: FetchInFlight, looks: list[Look]) -> None:
        if fetch.must_read_beside(looks):
            self._read_for_follower(fetch, looks)
            return
        records: list[Found] = []
        for look in looks:
            try:
                records.append(_take(look))
            except BlockingIOError:
                self.cold_reads += 1
                self._read_beside(fetch, looks)
                return
            if look.slice is not None and look.slice.nears_the_unread() and not self._stopped:
                self._cold_readers.submit(look.slice.read_ahead)
        self._answer(fetch, looks, records)

    def _read_for_follower(self, fetch: FetchInFlight, looks: list[Look]) -> None:
        """Read beside the loop, unless that has been done ahead."""
        session = fetch.context.session
        ahead, session.ahead = session.ahead, None
        if ahead is not None and ahead.takes(looks):
            ahead.work.add_done_callback(lambda done: self._read_ahead_done(fetch, looks, done))
        else:
            self._read_beside(fetch, looks)

    def _read_ahead_done(
        self, fetch: FetchInFlight, looks: list[Look], done: asyncio.Future[Found]
    ) -> None:
        if done.exception() is None:
            found = done.result()
            self._answer(fetch, looks, [b"" if look.slice is None else found for look in looks])
        else:
            self._read_failed(fetch, done)

    def _read_ahead(self, session: FetchSession, looks: list[Look]) -> None:
        foreseen = next_read(session, looks)
        if foreseen is None or foreseen.slice.fresh:
            return
        if foreseen.slice.size > FOLLOWER_READ_BYTES_MAX:
            work = self._loop.run_in_executor(self._cold_readers, _read_slice, foreseen.slice)
            session.ahead = ReadAhead(foreseen, work)

    def _read_beside(self, fetch: FetchInFlight, looks: list[Look]) -> None:
        """Read beside the loop, so that others go on."""
        work = self._loop.run_in_executor(self._cold_readers, _read_cold, looks)
        work.add_done_callback(lambda done: self._read_done(fetch, looks, done))

    def _read_done(
        self, fetch: FetchInFlight, looks: list[Look], done: asyncio.Future[list[Found]]
    ) -> None:
        if done.exception() is None:
            self._answer(fetch, looks, done.result())
        else:
            self._read_failed(fetch, done)

    def _read_failed(self, fetch: FetchInFlight, done: asyncio.Future[Any]) -> None:
        log.error("a read failed unexpectedly", exc_info=done.exception())
        fetch.exchange.connection.abort()

    def _answer(
        self,
        fetch: FetchInFlight,
        looks: list[Look],
        records: list[Found],
    ) -> None:
        context, params = fetch.context, fetch.params
        session = context.session
        topics: TopicData = []
        places: dict[TopicKey, list[PartitionData]] = {}
        leaders: set[int] = set()
        for look, read in zip(looks, records, strict=True):
            data = self._partition_data(look, read, params)
            wanted = look.wanted
            if session.id:
                if not _settle(wanted, data, look) and context.incremental:
                    continue
                if data.records:
                    session.served(wanted)
            if data.leader_id >= 0:
                leaders.add(data.leader_id)
            place = places.get(wanted.topic)
            if place is None:
                place = places[wanted.topic] = []
                topics.append((wanted.topic, place))
            place.append(data)
        exchange = fetch.exchange
        exchange.finish(
            encode_fetch_response(
                exchange.correlation_id,
                exchange.version,
                0,
                context.session_id,
                topics,
                self._hints.endpoints(leaders, exchange.connection.listener) if leaders else (),
            )
        )
        if not session.id:
            session.close()
        elif fetch.catches_up and not self._stopped:
            self._read_ahead(session, looks)

    def _partition_data(self, look: Look, read: Found, params: FetchParams) -> PartitionData:
        if isinstance(read, CorruptRecord):
            look.error = self._looker.corrupt(read)
        elif isinstance(read, StorageError):
            look.error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(read))
        partition = look.partition
        if look.error is not None or partition is None or isinstance(read, StorageError):
            return self._error_data(look, params)
        if params.is_follower:
            partition.counters.replication_bytes_out += len(read)
        else:
            partition.counters.bytes_out += len(read)
        diverging_epoch, diverging_end = look.diverging or (-1, -1)
        return PartitionData(
            look.wanted.index,
            0,
            look.high_watermark,
            look.last_stable_offset,
            look.log_start_offset,
            look.aborted,
            read,
            diverging_epoch=diverging_epoch,
            diverging_end_offset=diverging_end,
            preferred_read_replica=look.preferred,
        )

    def _error_data(self, look: Look, params: FetchParams) -> PartitionData:
        if look.partition is not None:
            look.partition.counters.failed_fetch_requests += 1
        code = look.error.code if look.error is not None else ErrorCode.UNKNOWN_SERVER_ERROR
        self._count_error(ApiKey.FETCH, code)
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
