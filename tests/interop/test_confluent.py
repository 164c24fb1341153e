"""librdkafka through confluent-kafka: publishing and consuming."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from support.helpers import (
    TopicMaker,
    admin,
    consumer,
    make_topic,
    next_event,
    produce_all,
    producer,
    read,
    take,
)
from support.process import BrokerProcess

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
T0 = 1_700_000_000_000


def values(messages: list[Any]) -> list[bytes | None]:
    return [message.value() for message in messages]


@pytest.mark.parametrize("codec", COMPRESSIONS)
@pytest.mark.parametrize("idempotent", [False, True])
def test_publish_and_read_back(
    node: BrokerProcess, topic: TopicMaker, codec: str, idempotent: bool
) -> None:
    name = topic()
    client = producer(node, compression_codec=codec, enable_idempotence=idempotent)
    sent = [{"key": f"k{i}", "value": f"value {i} " * 20, "timestamp": T0 + i} for i in range(500)]
    acked = produce_all(client, name, sent)
    assert [m.offset() for m in acked] == list(range(500))
    got = read(node, name, 500)
    assert [(m.offset(), m.key().decode(), m.value().decode()) for m in got] == [
        (i, s["key"], s["value"]) for i, s in enumerate(sent)
    ]
    assert [m.timestamp() for m in got] == [(TIMESTAMP_CREATE_TIME, T0 + i) for i in range(500)]


@pytest.mark.parametrize(
    "topic_codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"]
)
def test_the_topics_compression_is_applied(
    node: BrokerProcess, topic: TopicMaker, topic_codec: str
) -> None:
    name = topic(config={"compression.type": topic_codec})
    for codec in ("none", "lz4"):
        client = producer(node, compression_codec=codec)
        produce_all(client, name, [{"value": f"{codec} {i} " * 30} for i in range(50)])
    got = read(node, name, 100)
    assert [m.offset() for m in got] == list(range(100))
    assert got[0].value() == b"none 0 " * 30
    assert got[99].value() == b"lz4 49 " * 30


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(node: BrokerProcess, topic: TopicMaker, acks: str) -> None:
    name = topic()
    produce_all(producer(node, acks=acks), name, [{"value": str(i)} for i in range(100)])
    assert values(read(node, name, 100)) == [str(i).encode() for i in range(100)]


@pytest.mark.parametrize("codec", COMPRESSIONS)
def test_headers_null_keys_and_null_values(
    node: BrokerProcess, topic: TopicMaker, codec: str
) -> None:
    name = topic()
    headers = [("a", b"1"), ("a", b"2"), ("null", None), ("empty", b""), ("ключ", b"\x00\xff")]
    sent: list[dict[str, Any]] = [
        {"key": None, "value": None},
        {"key": b"", "value": b""},
        {"key": b"k", "value": None, "headers": headers},
        {"key": None, "value": b"v", "headers": []},
    ]
    produce_all(producer(node, compression_codec=codec), name, sent)
    got = read(node, name, 4)
    assert [(m.key(), m.value()) for m in got] == [(s["key"], s["value"]) for s in sent]
    assert [m.headers() or [] for m in got] == [[], [], headers, []]


def test_log_append_time_replaces_the_producers(node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic(config={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    for codec in ("none", "zstd"):
        client = producer(node, compression_codec=codec)
        acked = produce_all(client, name, [{"value": b"x", "timestamp": T0} for _ in range(10)])
        assert all(m.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME for m in acked)
    after = int(time.time() * 1000)
    for message in read(node, name, 20):
        kind, at = message.timestamp()
        assert kind == TIMESTAMP_LOG_APPEND_TIME
        assert before <= at <= after


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_messages_of_9_5_megabytes(node: BrokerProcess, topic: TopicMaker, codec: str) -> None:
    name = topic(config={"max.message.bytes": "10485760"})
    client = producer(
        node, message_max_bytes=10_485_760, compression_codec=codec, acks="all", linger_ms=0
    )
    body = bytes(range(256)) * (9_500_000 // 256)
    sent = [bytes([i]) + body for i in range(3)]
    produce_all(client, name, [{"value": value} for value in sent])
    got = read(node, name, 3, fetch_message_max_bytes=1_048_576, fetch_max_bytes=11_000_000)
    assert values(got) == sent


def test_too_large_a_message_is_refused(node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic(config={"max.message.bytes": "1000"})
    errors: list[KafkaError] = []
    client = producer(node)
    client.produce(name, b"x" * 2000, on_delivery=lambda error, _: errors.append(error))
    client.produce(name, b"small", partition=0, on_delivery=lambda error, _: errors.append(error))
    client.flush(20)
    assert errors[0] is not None
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_order_across_many_small_batches(node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic(partitions=3)
    client = producer(node, enable_idempotence=True, batch_num_messages=7, linger_ms=0)
    sent = [{"value": str(i), "partition": i % 3} for i in range(3000)]
    produce_all(client, name, sent)
    for partition in range(3):
        got = read(node, name, 1000, partition=partition)
        assert [int(m.value()) for m in got] == list(range(partition, 3000, 3))


def test_seek(node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic()
    produce_all(producer(node), name, [{"value": str(i)} for i in range(200)])
    client = consumer(node, enable_partition_eof=True)
    client.assign([TopicPartition(name, 0, 150)])
    assert values(take(client, 1)) == [b"150"]
    client.seek(TopicPartition(name, 0, 20))
    assert values(take(client, 3)) == [b"20", b"21", b"22"]
    client.seek(TopicPartition(name, 0, OFFSET_BEGINNING))
    assert values(take(client, 1)) == [b"0"]
    client.seek(TopicPartition(name, 0, OFFSET_END))
    end = next_event(client)
    assert (end.error().code(), end.offset()) == (KafkaError._PARTITION_EOF, 200)
    produce_all(producer(node), name, [{"value": b"new"}])
    assert values(take(client, 1)) == [b"new"]
    client.close()


def test_offsets_by_earliest_latest_and_timestamp(node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic()
    stamps = [T0, T0 + 1000, T0 + 5000, T0 + 3000, T0 + 9000]
    client = producer(node, linger_ms=0)
    for i, stamp in enumerate(stamps):
        produce_all(client, name, [{"value": str(i), "timestamp": stamp}])
    reader = consumer(node)
    assert reader.get_watermark_offsets(TopicPartition(name, 0), timeout=10) == (0, 5)
    wanted = {T0 - 1: 0, T0: 0, T0 + 1: 1, T0 + 1001: 2, T0 + 5001: 4, T0 + 9001: -1}
    for stamp, offset in wanted.items():
        [found] = reader.offsets_for_times([TopicPartition(name, 0, stamp)], timeout=10)
        assert found.error is None
        assert found.offset == offset, f"timestamp {stamp - T0}"
    reader.close()
    partition = TopicPartition(name, 0)
    for spec, offset, stamp in (
        (OffsetSpec.earliest(), 0, -1),
        (OffsetSpec.latest(), 5, -1),
        (OffsetSpec.max_timestamp(), 4, T0 + 9000),
        (OffsetSpec.for_timestamp(T0 + 2000), 2, T0 + 5000),
    ):
        result = admin(node).list_offsets({partition: spec})[partition].result(20)
        assert (result.offset, result.timestamp) == (offset, stamp)


def test_an_offset_out_of_range_is_an_error(node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic()
    produce_all(producer(node), name, [{"value": b"x"}])
    client = consumer(node)
    client.assign([TopicPartition(name, 0, 17)])
    message = next_event(client)
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
    assert "out of range" in message.error().str()
    client.close()


def test_read_committed_sees_plain_messages(node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic()
    produce_all(producer(node), name, [{"value": str(i)} for i in range(10)])
    got = read(node, name, 10, isolation_level="read_committed")
    assert values(got) == [str(i).encode() for i in range(10)]


def test_the_end_of_a_partition_is_seen(node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic()
    produce_all(producer(node), name, [{"value": b"x"}] * 3)
    client = consumer(node, enable_partition_eof=True)
    client.assign([TopicPartition(name, 0, 0)])
    take(client, 3)
    end = next_event(client)
    assert end.error().code() == KafkaError._PARTITION_EOF
    assert end.offset() == 3
    client.close()


def test_many_partitions_in_one_consumer(node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic(partitions=20)
    sent = [{"value": str(i), "partition": i % 20} for i in range(400)]
    produce_all(producer(node), name, sent)
    client = consumer(node)
    client.assign([TopicPartition(name, p, 0) for p in range(20)])
    got = take(client, 400)
    assert sorted(int(m.value()) for m in got) == list(range(400))
    client.close()


def test_an_unknown_topic_is_an_error(node: BrokerProcess, topic_name: Any) -> None:
    errors: list[KafkaError] = []
    client = producer(node, topic_metadata_propagation_max_ms=500, message_timeout_ms=3000)
    try:
        client.produce(topic_name(), b"x", on_delivery=lambda error, _: errors.append(error))
        client.flush(20)
    except KafkaException as error:
        errors.append(error.args[0])
    assert errors[0].code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)


def test_messages_survive_a_clean_restart(fresh_node: Any) -> None:
    broker = fresh_node()
    name = make_topic(broker, "kept", 2, {"retention.ms": "-1"})
    client = producer(broker, enable_idempotence=True)
    produce_all(client, name, [{"value": str(i), "partition": i % 2} for i in range(200)])
    broker.restart()
    produce_all(client, name, [{"value": str(i), "partition": i % 2} for i in range(200, 220)])
    for partition in range(2):
        got = read(broker, name, 110, partition=partition)
        assert [int(m.value()) for m in got] == list(range(partition, 220, 2))
    broker.stop()
