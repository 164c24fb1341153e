"""Reads a range of one partition into Arrow batches: the quick way, by Fetch requests of its own.

While a batch is decoded and taken by Spark the next answer is already under way. A
leader that moves or dies is looked for again for as long as `Reading.poll_timeout_s` allows without
progress; reading then goes on at the next offset, so no record comes twice and none is left out.
Where `Reading.rack` is said, the leader may name a replica near by: the range is read there, and
from the leader again as soon as that replica fails or has nothing.

Records that are gone (trimmed, or a topic that was deleted or made anew) raise `DataLossError`, or
are skipped where the query says so.

Limits: a request asks for `Reading.bytes_max` (`FETCH_BYTES_MAX`), so a worker holds at most two
answers of that size (or of one batch, if that is larger) and one decoded chunk.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

import pyarrow as pa

from penstock.base.errors import CorruptRecord, ErrorCode
from penstock.kafka.client import Address, Client, failed, parse_addresses
from penstock.kafka.connection import Connection, give_back, take
from penstock.kafka.errors import ClusterError
from penstock.spark.errors import DataLossError, SparkError
from penstock.spark.options import FETCH_BYTES_MAX, FETCH_WAIT_MS
from penstock.spark.records import Aborted, Place, chunks_of, offset_after, to_arrow
from penstock.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

RETRY_PAUSE_S = 0.1
UNKNOWN_S_MAX = 5.0
"""How long brokers may not know a topic, as one that has just started may, before it is gone."""
FETCH_VERSION = 11
"""The last that is not flexible and names topics by name; Kafka serves it since 2.3."""
METADATA_VERSION = 7
LIST_OFFSETS_VERSION = 2
_EARLIEST = -2

log = logging.getLogger(__name__)


class Range(NamedTuple):
    """Offsets of one partition, `end` excluded."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"topic {self.topic} partition {self.partition}"


class Reading(NamedTuple):
    """How a query reads."""

    bootstrap: str
    client: Client = Client()
    committed: bool = False
    fail_on_data_loss: bool = True
    headers: bool = False
    poll_timeout_s: float = 120.0
    bytes_max: int = FETCH_BYTES_MAX
    bytes_min: int = 1
    wait_ms: int = FETCH_WAIT_MS
    rack: str = ""


def read_range(wanted: Range, how: Reading) -> Iterator[pa.RecordBatch]:
    """The records of a range; batches are never empty."""
    reader = _RangeReader(wanted, how)
    try:
        yield from reader.batches()
    finally:
        reader.close()


class _Moved(Exception):
    """The partition is elsewhere, or nowhere for the moment."""


class _Unknown(_Moved):
    """A broker that should know does not know the topic or the partition."""


class _RangeReader:
    def __init__(self, wanted: Range, how: Reading) -> None:
        self._range = wanted
        self._how = how
        self._next = wanted.start
        self._connection: Connection | None = None
        self._addresses: dict[int, Address] = {}
        self._rack = how.rack
        self._near: Address | None = None
        self._progress_s = self._known_s = time.monotonic()

    def batches(self) -> Iterator[pa.RecordBatch]:
        while self._next < self._range.end:
            try:
                yield from self._batches_of_answer(self._ask())
            except (OSError, _Moved) as e:
                self._start_again(e)
            else:
                self._known_s = time.monotonic()

    def _ask(self) -> PartitionData:
        """The answer about the next offset; the question may have been sent before."""
        if self._connection is None:
            self._connection = take(self._near or self._leader(), self._how.client)
        if not self._connection.under_way:
            self._connection.send(self._request(self._next), FETCH_VERSION)
        answer = self._connection.receive(FetchResponse, FETCH_VERSION)
        if answer.error_code or not answer.responses:
            raise _Moved(ErrorCode(answer.error_code).name)
        return answer.responses[0].partitions[0]

    def _request(self, offset: int) -> FetchRequest:
        partition = FetchPartition(
            partition=self._range.partition,
            fetch_offset=offset,
            partition_max_bytes=self._how.bytes_max,
        )
        return FetchRequest(
            max_wait_ms=self._how.wait_ms,
            min_bytes=self._how.bytes_min,
            max_bytes=self._how.bytes_max,
            isolation_level=int(self._how.committed),
            topics=[FetchTopic(topic=self._range.topic, partitions=[partition])],
            rack_id=self._rack,
        )

    def _batches_of_answer(self, data: PartitionData) -> Iterator[pa.RecordBatch]:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(data)
            return
        if data.error_code:
            raise _Moved(ErrorCode(data.error_code).name)
        if (near := self._addresses.get(data.preferred_read_replica)) is not None:
            self.close()
            self._near = near
            return
        records = memoryview(data.records or b"")
        following = offset_after(records, self._next)
        if following == self._next:
            self._nothing_there(data)
            return
        self._progress_s = time.monotonic()
        if following < self._range.end and self._connection is not None:
            self._connection.send(self._request(following), FETCH_VERSION)
        place = Place(self._range.topic, self._range.partition, self._next, self._range.end)
        aborted = Aborted((a.producer_id, a.first_offset) for a in data.aborted_transactions or ())
        yield from self._decoded(records, place, aborted)

    def _decoded(
        self, records: memoryview, place: Place, aborted: Aborted
    ) -> Iterator[pa.RecordBatch]:
        try:
            for chunk, following in chunks_of(records, place, aborted):
                batch = to_arrow(chunk, place, headers=self._how.headers) if chunk.batches else None
                self._next = following
                if batch is not None and batch.num_rows:
                    yield batch
        except CorruptRecord as e:
            raise SparkError(
                f"cannot read {self._range} from offset {self._next}: {e}; read past it with"
                " startingOffsets, or have a look at the broker's log"
            ) from e

    def _nothing_there(self, data: PartitionData) -> None:
        """An empty answer: the end of the partition is before the end of the range."""
        self._ask_the_leader()
        end = data.last_stable_offset if self._how.committed else data.high_watermark
        if time.monotonic() - self._progress_s > self._how.poll_timeout_s:
            self._lost(
                f"the partition ends at offset {end}, and nothing has come for"
                f" {self._how.poll_timeout_s:g} s",
                self._range.end,
            )

    def _out_of_range(self, data: PartitionData) -> None:
        self._ask_the_leader()
        earliest = self._earliest()
        if earliest <= self._next:
            self._lost(
                f"the partition ends before that, at offset {data.high_watermark}",
                self._range.end,
            )
        else:
            self._lost(f"the partition now begins at offset {earliest}", earliest)

    def _ask_the_leader(self) -> None:
        """What a replica does not have its leader may have."""
        if self._near is not None:
            raise _Moved("the replica near by does not have it")

    def _lost(self, why: str, go_on_at: int) -> None:
        """Records are gone: fail, or say so and go on at another offset."""
        what = (
            f"{self._range}: offsets {self._next} to {min(go_on_at, self._range.end) - 1} are gone"
            f" ({why})"
        )
        if self._how.fail_on_data_loss:
            raise DataLossError(
                f"{what}; they were deleted by retention, a trim or with their topic. Set"
                " failOnDataLoss to false to go on with what is there"
            )
        log.warning("%s; going on, as failOnDataLoss is false", what)
        self._next = min(go_on_at, self._range.end)

    def _earliest(self) -> int:
        if self._connection is None:
            raise _Moved("not connected")
        partition = ListOffsetsPartition(partition_index=self._range.partition, timestamp=_EARLIEST)
        topic = ListOffsetsTopic(name=self._range.topic, partitions=[partition])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])
        answer = self._connection.call(request, ListOffsetsResponse, LIST_OFFSETS_VERSION)
        found = answer.topics[0].partitions[0]
        if found.error_code:
            raise _Moved(ErrorCode(found.error_code).name)
        return found.offset

    # -- where the leader is -------------------------------------------------------------------

    def _leader(self) -> Address:
        why: Exception = _Moved("no server answered")
        for address in parse_addresses(self._how.bootstrap):
            try:
                connection = take(address, self._how.client)
                topics = [MetadataRequestTopic(name=self._range.topic)]
                request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
                try:
                    answer = connection.call(request, MetadataResponse, METADATA_VERSION)
                except OSError:
                    connection.close()
                    raise
                give_back(connection)
            except OSError as e:
                why = _Moved(failed(address, e))
                continue
            return self._leader_in(answer)
        raise why

    def _leader_in(self, answer: MetadataResponse) -> Address:
        topic = answer.topics[0]
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise _Unknown("the topic does not exist")
        if topic.error_code:
            raise _Moved(ErrorCode(topic.error_code).name)
        self._addresses = {b.node_id: (b.host, b.port) for b in answer.brokers}
        for partition in topic.partitions:
            if partition.partition_index == self._range.partition:
                if leader := self._addresses.get(partition.leader_id):
                    return leader
                raise _Moved(ErrorCode(partition.error_code).name)
        raise _Unknown("the topic has no such partition")

    def _start_again(self, error: Exception) -> None:
        self._drop()
        if self._near is not None:
            self._near, self._rack = None, ""
        if not isinstance(error, _Unknown):
            self._known_s = time.monotonic()
        elif time.monotonic() - self._known_s > UNKNOWN_S_MAX:
            self._lost(str(error), self._range.end)
            return
        if time.monotonic() - self._progress_s > self._how.poll_timeout_s:
            self._give_up(error)
        time.sleep(RETRY_PAUSE_S)

    def _give_up(self, error: Exception) -> NoReturn:
        raise ClusterError(
            f"cannot read {self._range} from offset {self._next}: {error}, for"
            f" {self._how.poll_timeout_s:g} s now; see whether the cluster is well and start the"
            " query again: it goes on where it was"
        ) from error

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Keep the connection for the next task, if it is of use."""
        if self._connection is not None:
            give_back(self._connection)
            self._connection = None
