"""Writes a query's rows to topics: the work of a task, and the writer of batches.

A task begins its transaction, writes its rows, leaves the marker and hands what is needed to end
the transaction to the driver (`Handed`); the driver's `commit` ends the transactions of all tasks.
In which process each call runs, what is durable when and what each failure leads to:
docs/adr/0015-spark-sink.md.

Invariants: a task without rows touches nothing. Rows are visible to readers of committed data only
after `commit` has been called for them, and once for each batch that has a name (`Work.batch_id`).
A task of a batch job that begins after the job's `abort` leaves nothing open: the abort leaves a
transactional id behind that no job has but this one, and a task looks for it once it has begun.
With delivery at least once there are no transactions: rows are visible as they come, and a
repeated task repeats them.

Limits: a worker holds two of Spark's Arrow batches. The transactions of a batch are
committed one after the other, so who reads meanwhile may see some tasks' rows before others'.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from penstock.kafka.brokers import Brokers
from penstock.kafka.client import parse_addresses
from penstock.spark.encoding import Rows, cut, encode_headers, milliseconds, payload_bytes
from penstock.spark.errors import SparkError
from penstock.spark.partitioning import choose
from penstock.spark.producer import Identity, Producer
from penstock.spark.sink import SinkOptions
from penstock.spark.transactions import (
    Marker,
    Prepared,
    Transaction,
    Written,
    abort,
    begin,
    commit,
    read_marker,
    was_begun,
)


class Work(NamedTuple):
    """Whose rows a task writes; `batch_id` is None for rows that no replay can repeat."""

    query: str
    batch_id: int | None
    task: int


@dataclass(frozen=True)
class Handed(WriterCommitMessage):
    """What a task hands to the driver; `prepared` is None where there is nothing to end."""

    work: Work
    written: Written
    prepared: Prepared | None


class RowWriter:
    """Sends chunks of rows to the topics and partitions that they name."""

    def __init__(self, brokers: Brokers, options: SinkOptions, producer: Producer, turn: int):
        self._brokers = brokers
        self._topic = options.topic
        self._producer = producer
        self._turn = turn
        self.written = Written(0, 0)
        self.first_topic = ""

    def write(self, chunk: pa.RecordBatch) -> None:
        columns = {name: chunk.column(name) for name in chunk.schema.names}
        rows = _rows_of(columns)
        asked = columns.get("partition")
        pieces: list[tuple[str, int, Rows]] = []
        for topic, places in _by_topic(self._topic, columns.get("topic"), len(rows)):
            wanted = asked if places is None or asked is None else asked.take(pa.array(places))
            mine = rows if places is None else rows.take(places)
            pieces += self._by_partition(topic, mine, wanted)
            self.first_topic = self.first_topic or topic
        self._turn += 1
        self._producer.send(pieces)
        so_far = self.written
        self.written = Written(so_far.rows + len(rows), so_far.bytes + payload_bytes(rows))

    def _by_partition(self, topic: str, rows: Rows, asked: Any) -> list[tuple[str, int, Rows]]:
        count = len(self._brokers.leaders(topic).addresses)
        chosen = choose(topic, count, len(rows), asked, rows.key, self._turn)
        order = np.argsort(chosen, kind="stable")
        chosen = chosen[order]
        starts = [0, *(np.flatnonzero(np.diff(chosen)) + 1).tolist(), len(rows)]
        if len(starts) > 2:
            rows = rows.take(order)
        return [
            (topic, int(chosen[start]), piece)
            for start, stop in itertools.pairwise(starts)
            for piece in cut(rows.slice(start, stop))
        ]


def _rows_of(columns: dict[str, Any]) -> Rows:
    key, headers, timestamp = (columns.get(n) for n in ("key", "headers", "timestamp"))
    return Rows(
        None if key is None else key.cast(pa.binary()),
        columns["value"].cast(pa.binary()),
        None if headers is None else encode_headers(headers),
        None if timestamp is None else milliseconds(timestamp),
    )


def _by_topic(fixed: str | None, column: Any, rows: int) -> list[tuple[str, Any]]:
    """Topics and the places of their rows, None for all of them."""
    if fixed is not None:
        return [(fixed, None)] if rows else []
    if column.null_count:
        raise SparkError(
            "a row has no topic: column 'topic' is null; fill it, or give the option topic"
        )
    names = pc.dictionary_encode(column)
    which = names.indices.to_numpy(zero_copy_only=False)
    topics = names.dictionary.to_pylist()
    if len(topics) == 1:
        return [(topics[0], None)]
    return [(topic, np.flatnonzero(which == i)) for i, topic in enumerate(topics)]


def connect(options: SinkOptions) -> Brokers:
    return Brokers(parse_addresses(options.bootstrap), options.settle_s, options.client)


class Task:
    """The steps of one task, in their order. `job` is the name of its batch job, by which the task
    finds out that the job was given up; a stream's writer knows none.
    """

    def __init__(self, options: SinkOptions, work: Work, job: str | None = None) -> None:
        self._options = options
        self._work = work
        self._job = job

    def run(self, chunks: Iterator[pa.RecordBatch]) -> Handed:
        """Writes all rows; what it returns is enough to make them visible."""
        chunks = (chunk for chunk in chunks if chunk.num_rows)
        first = next(chunks, None)
        if first is None:
            return Handed(self._work, Written(0, 0), None)
        with connect(self._options) as brokers:
            identity = self.begin(brokers)
            self.check_wanted(brokers)
            marker = self.find_marker(brokers, identity)
            if marker is not None:
                return self._skip(marker, first, chunks)
            return self._write(brokers, identity, first, chunks)

    def begin(self, brokers: Brokers) -> Identity:
        options, work = self._options, self._work
        name = options.transactional_id(work.query, work.task) if options.exactly_once else None
        return begin(brokers, name, options.transaction_timeout_ms)

    def check_wanted(self, brokers: Brokers) -> None:
        """Refuses to write for a job that was given up. It comes after `begin`: an abort that is
        not seen here has yet to take this task's id over, and ends what is written until then.
        """
        options, job = self._options, self._job
        if job is None or not options.exactly_once:
            return
        if was_begun(brokers, options.given_up_id(job)):
            raise SparkError(
                f"task {self._work.task} begins after its job was given up, and writes nothing: see"
                " the job's own error for the reason"
            )

    def find_marker(self, brokers: Brokers, identity: Identity) -> Marker | None:
        """The marker of this very batch, if it was committed before."""
        batch_id, name = self._work.batch_id, identity.transactional_id
        if batch_id is None or name is None:
            return None
        marker = read_marker(brokers, name)
        if marker is None or marker.batch_id < batch_id:
            return None
        if marker.batch_id > batch_id:
            raise SparkError(
                f"batch {batch_id} of {self._work.query} comes after batch {marker.batch_id} was"
                " committed: its checkpoint is older than what the topic holds, or another run"
                " of the query is under way. Use the newest checkpoint, or a new one"
            )
        return marker

    def _write(
        self,
        brokers: Brokers,
        identity: Identity,
        first: pa.RecordBatch,
        rest: Iterator[pa.RecordBatch],
    ) -> Handed:
        work, options = self._work, self._options
        transaction = Transaction(brokers, identity) if identity.transactional_id else None
        add = (lambda _: None) if transaction is None else transaction.add_partitions
        producer = Producer(brokers, identity, options.compression, add)
        rows = RowWriter(brokers, options, producer, work.task + (work.batch_id or 0))
        rows.write(first)
        for chunk in rest:
            rows.write(chunk)
        producer.finish()
        if transaction is None:
            return Handed(work, rows.written, None)
        if work.batch_id is not None:
            transaction.mark(rows.first_topic, work.batch_id, rows.written)
        return Handed(work, rows.written, Prepared(identity, work.batch_id))

    def _skip(
        self, marker: Marker, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]
    ) -> Handed:
        """The rows are visible already. That they are the same rows is Spark's promise, which a
        query breaks that shares its rows out differently each time.
        """
        rows = _rows_of({name: first.column(name) for name in first.schema.names})
        count, size = len(rows), payload_bytes(rows)
        for chunk in rest:
            rows = _rows_of({name: chunk.column(name) for name in chunk.schema.names})
            count, size = count + len(rows), size + payload_bytes(rows)
        if Written(count, size) != marker.written:
            raise SparkError(
                f"task {self._work.task} of batch {self._work.batch_id} of {self._work.query} has"
                f" {count} rows of {size} bytes, but was committed with {marker.written.rows} rows"
                f" of {marker.written.bytes} bytes: the query does not give the same rows to the"
                " same task when it is repeated, or its partitioning was changed. Start it with"
                " the settings that it had"
            )
        return Handed(self._work, Written(0, 0), None)


def commit_all(options: SinkOptions, messages: list[Handed]) -> None:
    """Ends the transactions of all tasks; may be repeated."""
    prepared = [m.prepared for m in messages if m.prepared is not None]
    with connect(options) as brokers:
        for transaction in prepared:
            commit(brokers, transaction)


def abort_all(options: SinkOptions, messages: list[Handed]) -> None:
    """Gives up what is still open. What was committed stays: a replay finds its marker."""
    prepared = [m.prepared for m in messages if m.prepared is not None]
    with connect(options) as brokers:
        for transaction in prepared:
            abort(brokers, transaction)


def end_unfinished(
    options: SinkOptions, query: str, messages: list[WriterCommitMessage | None]
) -> None:
    """Ends what tasks without a message have left open, so that readers need not wait for its
    time-out. A task that writes on is fenced.
    """
    if not options.exactly_once:
        return
    with connect(options) as brokers:
        for task, message in enumerate(messages):
            if message is None:
                name = options.transactional_id(query, task)
                begin(brokers, name, options.transaction_timeout_ms)


def give_up(options: SinkOptions, job: str) -> None:
    """Has tasks of the job that have not begun yet write nothing."""
    if options.exactly_once:
        with connect(options) as brokers:
            begin(brokers, options.given_up_id(job), options.transaction_timeout_ms)


def handed(messages: list[WriterCommitMessage | None]) -> list[Handed]:
    """The messages of tasks that have come to their end."""
    return [m for m in messages if isinstance(m, Handed)]


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame. It is made once, by the driver; tasks, `commit` and `abort` work with
    copies.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._job = uuid.uuid4().hex
        self._query = options.app_id or self._job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Handed:
        context = TaskContext.get()
        if context is None:
            raise SparkError("the sink's write runs only in a task of Spark")
        return self.task(context.partitionId()).run(iterator)

    def task(self, number: int) -> Task:
        work = Work(self._query, self._options.app_version, number)
        return Task(self._options, work, self._job)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit_all(self._options, handed(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        give_up(self._options, self._job)
        abort_all(self._options, handed(messages))
        end_unfinished(self._options, self._query, messages)
