"""Reads a range of one partition by a consumer of confluent-kafka: the way for connections with TLS
or SASL, slower than `fetch` but with every `kafka.*` setting.

The consumer joins no group and commits nothing. Records that are gone are dealt with as in `fetch`.
A range may end in offsets that hold no record (markers of transactions, compacted records): the
range is read when a record at or after its end was seen, or the end of the partition.

Limits: `BATCH_RECORDS_MAX` records make one Arrow batch; the client's own queue is bounded by
`queued.max.messages.kbytes`, 64 MiB unless the query sets it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock.spark.cluster import client_settings
from penstock.spark.errors import ClusterError, DataLossError
from penstock.spark.fetch import Range, Reading
from penstock.spark.records import SCHEMA, SCHEMA_WITH_HEADERS

BATCH_RECORDS_MAX = 20_000
POLL_S = 0.5
QUEUE_KBYTES = 65_536
_LOG_APPEND_TIME = 2

log = logging.getLogger(__name__)


def consume_range(
    wanted: Range, how: Reading, kafka: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """The records of a range; batches are never empty."""
    consumer = Consumer(
        client_settings(
            {"queued.max.messages.kbytes": str(QUEUE_KBYTES), **kafka},
            **{
                "group.id": kafka.get("group.id", "penstock-spark"),
                "isolation.level": "read_committed" if how.committed else "read_uncommitted",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            },
        )
    )
    try:
        yield from _Consuming(consumer, wanted, how).batches()
    finally:
        consumer.close()


class _Consuming:
    def __init__(self, consumer: Consumer, wanted: Range, how: Reading) -> None:
        self._consumer = consumer
        self._range = wanted
        self._how = how
        self._next = wanted.start
        self._progress_s = time.monotonic()

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._seek(self._next)
        while self._next < self._range.end:
            taken = self._wanted(self._consumer.consume(BATCH_RECORDS_MAX, timeout=POLL_S))
            if taken:
                yield _to_arrow(taken, headers=self._how.headers)

    def _seek(self, offset: int) -> None:
        self._consumer.assign([TopicPartition(self._range.topic, self._range.partition, offset)])

    def _wanted(self, messages: list[Message]) -> list[Message]:
        """The messages of the range; notes how far it is read."""
        taken = []
        for message in messages:
            if (error := message.error()) is not None:
                self._handle(error, message)
                continue
            offset = message.offset()
            assert offset is not None
            self._progress_s = time.monotonic()
            if self._next <= offset < self._range.end:
                taken.append(message)
            self._next = max(self._next, offset + 1)
        if time.monotonic() - self._progress_s > self._how.poll_timeout_s:
            raise ClusterError(
                f"cannot read {self._range} from offset {self._next}: nothing came for"
                f" {self._how.poll_timeout_s:g} s; see whether the cluster is well and start the"
                " query again: it goes on where it was"
            )
        return taken

    def _handle(self, error: KafkaError, message: Message) -> None:
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            self._next = max(self._next, message.offset() or 0)
        elif code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._out_of_range()
        elif error.fatal() or not (error.retriable() or code < 0):
            raise ClusterError(
                f"cannot read {self._range} from offset {self._next}: {error.str()}"
            ) from KafkaException(error)

    def _out_of_range(self) -> None:
        place = TopicPartition(self._range.topic, self._range.partition)
        low, high = self._consumer.get_watermark_offsets(place, timeout=self._how.poll_timeout_s)
        go_on_at = min(low if low > self._next else self._range.end, self._range.end)
        what = (
            f"{self._range}: offsets {self._next} to {go_on_at - 1} are gone (the partition has"
            f" {low} to {high})"
        )
        if self._how.fail_on_data_loss:
            raise DataLossError(
                f"{what}; they were deleted by retention, a trim or with their topic. Set"
                " failOnDataLoss to false to go on with what is there"
            )
        log.warning("%s; going on, as failOnDataLoss is false", what)
        self._next = go_on_at
        self._seek(go_on_at)


def _to_arrow(messages: list[Message], *, headers: bool) -> pa.RecordBatch:
    stamps = [message.timestamp() for message in messages]
    columns: list[Any] = [
        [message.key() for message in messages],
        [message.value() for message in messages],
        [message.topic() for message in messages],
        [message.partition() for message in messages],
        [message.offset() for message in messages],
        [stamp * 1000 for _, stamp in stamps],
        [int(kind == _LOG_APPEND_TIME) for kind, _ in stamps],
    ]
    schema = SCHEMA
    if headers:
        columns.append([_headers(message) for message in messages])
        schema = SCHEMA_WITH_HEADERS
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _headers(message: Message) -> list[dict[str, Any]] | None:
    found: Any = message.headers()
    return [{"key": key, "value": value} for key, value in found] if found else None
