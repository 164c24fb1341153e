"""What a topic shows to readers of committed data, and the sink's tasks without Spark."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from penstock.spark.sink import SinkOptions, sink_options
from penstock.spark.writer import Handed, Task, Work

from .cluster import Cluster
from .helpers import admin, consumer
from .process import BrokerProcess
from .waiting import CALL_SECONDS_MAX

MARKER_SECONDS_MAX = 10.0


def committed(broker: BrokerProcess | Cluster, topic: str) -> list[Message]:
    """Every message of a topic up to its last stable offset. An open transaction ends the reading
    of its partition, so what it holds back is missed by whoever counts.
    """
    client = consumer(broker, isolation_level="read_committed", enable_partition_eof=True)
    places = admin(broker).list_topics(topic).topics[topic].partitions
    _let_transactions_end(broker, client, [TopicPartition(topic, p) for p in places])
    client.assign([TopicPartition(topic, p, 0) for p in places])
    deadline = time.monotonic() + CALL_SECONDS_MAX
    found: list[Message] = []
    ended: set[int | None] = set()
    while len(ended) < len(places):
        assert time.monotonic() < deadline, f"{topic}: the end was not reached"
        for message in client.consume(1000, timeout=0.2):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    client.close()
    return found


def _let_transactions_end(
    broker: BrokerProcess | Cluster, committed: Consumer, places: list[TopicPartition]
) -> None:
    """A commit is answered before its markers are written: they come a moment later."""
    everything = consumer(broker, isolation_level="read_uncommitted")
    deadline = time.monotonic() + MARKER_SECONDS_MAX
    ends = [everything.get_watermark_offsets(place)[1] for place in places]
    everything.close()
    while time.monotonic() < deadline:
        stable = [committed.get_watermark_offsets(place)[1] for place in places]
        if all(at >= end for at, end in zip(stable, ends, strict=True)):
            return
        time.sleep(0.02)


def values(broker: BrokerProcess | Cluster, topic: str) -> Counter[bytes]:
    """How often each value is there for readers of committed data."""
    return Counter(message.value() or b"" for message in committed(broker, topic))


def options_for(broker: BrokerProcess | Cluster, **options: str) -> SinkOptions:
    return sink_options({"kafka.bootstrap.servers": broker.bootstrap, **options})


def chunk(values: Sequence[bytes | None], **columns: Sequence[object]) -> pa.RecordBatch:
    """Rows as Spark hands them to a task."""
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary()), **_arrays(columns)})


def _arrays(columns: Mapping[str, Sequence[object]]) -> dict[str, pa.Array]:
    kinds = {"key": pa.binary(), "topic": pa.string(), "partition": pa.int32()}
    return {name: pa.array(column, kinds.get(name)) for name, column in columns.items()}


def run_task(options: SinkOptions, work: Work, *chunks: pa.RecordBatch) -> Handed:
    return Task(options, work).run(iter(chunks))
