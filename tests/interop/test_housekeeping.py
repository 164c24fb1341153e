"""What a node does unasked, seen from outside: compaction, retention, and disk space given back."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from support.helpers import admin, consumer, make_topic, produce_all, producer
from support.process import BrokerProcess
from support.waiting import eventually

pytestmark = pytest.mark.penstock_only

QUICK = {
    "log.retention.check.interval.ms": "200",
    "log.cleaner.backoff.ms": "200",
    "log.segment.delete.delay.ms": "0",
}
SMALL_SEGMENTS = {"segment.bytes": str(1 << 20)}  # the least that Kafka allows


@pytest.fixture
def quick_node(fresh_node: Callable[..., BrokerProcess]) -> BrokerProcess:
    return fresh_node(settings=QUICK)


def log_files(node: BrokerProcess, topic: str) -> list[Path]:
    return sorted(node.data_dir.glob(f"{topic}-0/*.log"))


def bytes_on_disk(node: BrokerProcess, pattern: str) -> int:
    return sum(path.stat().st_size for path in node.data_dir.glob(f"{pattern}/*") if path.is_file())


def watermarks(node: BrokerProcess, topic: str) -> tuple[int, int]:
    client = consumer(node)
    try:
        low, high = client.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
        return low, high
    finally:
        client.close()


def read_from_start(node: BrokerProcess, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    """(offset, key, value) of everything that is in the log."""
    client = consumer(node, **{"enable.partition.eof": True})
    low, _ = client.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    client.assign([TopicPartition(topic, 0, low)])
    found = []
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        message = client.poll(1)
        if message is None:
            continue
        if message.error() is not None:
            assert message.error().name() == "_PARTITION_EOF", message.error()
            break
        found.append((message.offset(), message.key(), message.value()))
    client.close()
    return found


def test_compaction_keeps_the_latest_of_each_key_under_traffic(quick_node: BrokerProcess) -> None:
    topic = make_topic(
        quick_node,
        "compacted",
        1,
        {
            **SMALL_SEGMENTS,
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "0",
        },
    )
    writer = producer(quick_node, enable_idempotence=True)
    messages = [{"key": f"k{i % 50}", "value": f"{i}-{'x' * 1_000}"} for i in range(3_000)]
    messages += [{"key": f"k{i}", "value": None} for i in range(10)]
    acked = produce_all(writer, topic, messages)
    latest = {f"k{i % 50}".encode(): f"{i}-{'x' * 1_000}".encode() for i in range(3_000)}
    offsets = {message.offset(): message.key() for message in acked}

    def compacted() -> bool:
        # Something new rolls the active segment, so that all of the above can be cleaned.
        produce_all(writer, topic, [{"key": "filler", "value": "y" * 300_000}])
        found = [row for row in read_from_start(quick_node, topic) if row[1] != b"filler"]
        assert found == sorted(found), "offsets stay in order"
        for offset, key, _ in found:
            assert offsets[offset] == key, "a record keeps its offset"
        now: dict[bytes, bytes | None] = {}
        for _, key, value in found:
            now[key] = value
        for i in range(50):
            key = f"k{i}".encode()
            assert now.get(key) == (None if i < 10 else latest[key]), "no latest value is lost"
        return len(found) == 40  # each of the 40 living keys once; the ten tombstones are gone

    eventually(compacted, seconds=60)
    assert quick_node.metric("penstock_cleaner_runs_total") >= 1
    assert quick_node.metric("penstock_cleaner_failures_total") == 0


def test_retention_by_size(quick_node: BrokerProcess) -> None:
    topic = make_topic(quick_node, "by-size", 1, {**SMALL_SEGMENTS, "retention.bytes": "2000000"})
    writer = producer(quick_node, batch_num_messages=20)
    produce_all(writer, topic, [{"value": "x" * 4_000} for _ in range(2_000)])
    eventually(lambda: len(log_files(quick_node, topic)) <= 4, seconds=20)
    low, high = watermarks(quick_node, topic)
    assert high == 2_000
    assert 0 < low < high
    rows = read_from_start(quick_node, topic)
    assert [row[0] for row in rows] == list(range(low, high))
    eventually(lambda: bytes_on_disk(quick_node, f"{topic}-0") < 4_000_000, seconds=20)


def test_retention_by_time(quick_node: BrokerProcess) -> None:
    topic = make_topic(quick_node, "by-time", 1, {**SMALL_SEGMENTS, "retention.ms": "3600000"})
    writer = producer(quick_node, batch_num_messages=20)
    now_ms = int(time.time() * 1000)
    old = [{"value": "x" * 4_000, "timestamp": now_ms - 7_200_000} for _ in range(1_500)]
    new = [{"value": "y" * 4_000, "timestamp": now_ms} for _ in range(500)]
    produce_all(writer, topic, old + new)

    def only_new() -> bool:
        return watermarks(quick_node, topic)[0] >= 1_000

    eventually(only_new, seconds=20)
    values = {row[2] for row in read_from_start(quick_node, topic) if row[0] >= 1_500}
    assert values == {b"y" * 4_000}
    assert watermarks(quick_node, topic)[1] == 2_000


def test_a_deleted_topic_gives_its_disk_back(quick_node: BrokerProcess) -> None:
    topic = make_topic(quick_node, "doomed", 3)
    writer = producer(quick_node)
    produce_all(writer, topic, [{"value": b"z" * 10_000, "partition": i % 3} for i in range(300)])
    assert bytes_on_disk(quick_node, "doomed-*") > 2_500_000
    admin(quick_node).delete_topics([topic])[topic].result(10)
    eventually(lambda: not list(quick_node.data_dir.glob("doomed-*")), seconds=20)


def test_a_stop_and_a_start_change_nothing(quick_node: BrokerProcess) -> None:
    topic = make_topic(quick_node, "kept", 1, SMALL_SEGMENTS)
    produce_all(producer(quick_node), topic, [{"key": "k", "value": f"{i}"} for i in range(500)])
    before = read_from_start(quick_node, topic)
    quick_node.stop()
    quick_node.start()
    assert read_from_start(quick_node, topic) == before
    quick_node.kill()
    quick_node.start()
    assert read_from_start(quick_node, topic) == before
