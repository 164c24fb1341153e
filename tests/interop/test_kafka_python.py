"""kafka-python: publishing, consuming by assignment, and its admin client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, NewTopic, OffsetSpec
from kafka.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.structs import TopicPartition

from support.helpers import TopicMaker, eventually
from support.process import BrokerProcess

COMPRESSIONS = (None, "gzip", "snappy", "lz4", "zstd")
T0 = 1_700_000_000_000
READ_SECONDS_MAX = 30.0

Made = list[Any]


@pytest.fixture
def made() -> Iterator[Made]:
    """Clients that are closed after the test."""
    clients: Made = []
    yield clients
    for client in clients:
        client.close()


@pytest.fixture
def producer(node: BrokerProcess, made: Made) -> Callable[..., KafkaProducer]:
    def make(**config: Any) -> KafkaProducer:
        made.append(KafkaProducer(bootstrap_servers=node.bootstrap, **config))
        return made[-1]

    return make


@pytest.fixture
def consumer(node: BrokerProcess, made: Made) -> Callable[..., KafkaConsumer]:
    def make(*partitions: TopicPartition, **config: Any) -> KafkaConsumer:
        base = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "group_id": None}
        client = KafkaConsumer(bootstrap_servers=node.bootstrap, **(base | config))
        client.assign(list(partitions))
        made.append(client)
        return client

    return make


@pytest.fixture
def admin(node: BrokerProcess, made: Made) -> KafkaAdminClient:
    made.append(KafkaAdminClient(bootstrap_servers=node.bootstrap))
    return made[-1]


def take(client: KafkaConsumer, count: int) -> list[Any]:
    got: list[Any] = []
    deadline = time.monotonic() + READ_SECONDS_MAX
    while len(got) < count:
        assert time.monotonic() < deadline, f"{len(got)} of {count} messages"
        for records in client.poll(timeout_ms=500).values():
            got += records
    return got


@pytest.mark.parametrize("codec", COMPRESSIONS)
@pytest.mark.parametrize("idempotent", [False, True])
def test_publish_and_read_back(
    topic: TopicMaker, producer: Any, consumer: Any, codec: str | None, idempotent: bool
) -> None:
    name = topic()
    headers = [("a", b"1"), ("a", b"2"), ("empty", b"")]
    client = producer(compression_type=codec, linger_ms=5, enable_idempotence=idempotent)
    sent = [
        client.send(name, f"value {i} ".encode() * 20, f"k{i}".encode(), headers, 0, T0 + i)
        for i in range(300)
    ]
    assert [future.get(20).offset for future in sent] == list(range(300))
    got = take(consumer(TopicPartition(name, 0)), 300)
    assert [(m.offset, m.key, m.value, m.timestamp) for m in got] == [
        (i, f"k{i}".encode(), f"value {i} ".encode() * 20, T0 + i) for i in range(300)
    ]
    assert all(list(m.headers) == headers and m.timestamp_type == 0 for m in got)


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(topic: TopicMaker, producer: Any, consumer: Any, acks: Any) -> None:
    name = topic()
    client = producer(acks=acks, enable_idempotence=False)
    for i in range(50):
        client.send(name, str(i).encode(), partition=0)
    client.flush(20)
    got = take(consumer(TopicPartition(name, 0)), 50)
    assert [int(m.value) for m in got] == list(range(50))


def test_null_keys_and_null_values(topic: TopicMaker, producer: Any, consumer: Any) -> None:
    name = topic()
    client = producer()
    for key, value in ((None, b"v"), (b"k", None), (b"", b"")):
        client.send(name, value, key, partition=0).get(20)
    got = take(consumer(TopicPartition(name, 0)), 3)
    assert [(m.key, m.value) for m in got] == [(None, b"v"), (b"k", None), (b"", b"")]


def test_log_append_time(topic: TopicMaker, producer: Any, consumer: Any) -> None:
    name = topic(config={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    answer = producer().send(name, b"x", partition=0, timestamp_ms=T0).get(20)
    assert before <= answer.timestamp <= int(time.time() * 1000)
    [message] = take(consumer(TopicPartition(name, 0)), 1)
    assert (message.timestamp, message.timestamp_type) == (answer.timestamp, 1)


def test_messages_of_9_5_megabytes(topic: TopicMaker, producer: Any, consumer: Any) -> None:
    name = topic(config={"max.message.bytes": "10485760"})
    body = bytes(range(256)) * (9_500_000 // 256)
    client = producer(max_request_size=10_485_760, acks="all")
    for i in range(2):
        client.send(name, bytes([i]) + body, partition=0).get(30)
    got = take(consumer(TopicPartition(name, 0), max_partition_fetch_bytes=1000), 2)
    assert [m.value for m in got] == [b"\x00" + body, b"\x01" + body]


def test_too_large_a_message_is_refused(topic: TopicMaker, producer: Any) -> None:
    name = topic(config={"max.message.bytes": "1000"})
    with pytest.raises(MessageSizeTooLargeError):
        producer(enable_idempotence=False, retries=0).send(name, b"x" * 2000, partition=0).get(20)


def test_seek_and_positions(topic: TopicMaker, producer: Any, consumer: Any) -> None:
    name = topic()
    partition = TopicPartition(name, 0)
    client = producer()
    for i in range(100):
        client.send(name, str(i).encode(), partition=0)
    client.flush(20)
    reader = consumer(partition, max_poll_records=5)
    reader.seek(partition, 90)
    assert take(reader, 1)[0].value == b"90"
    reader.seek_to_beginning(partition)
    assert take(reader, 1)[0].value == b"0"
    reader.seek_to_end(partition)
    assert reader.position(partition) == 100
    reader.seek(partition, 500)
    eventually(lambda: any(m.offset == 0 for m in take(reader, 1)))  # reset to earliest


def test_offset_out_of_range_without_a_reset(
    topic: TopicMaker, producer: Any, consumer: Any
) -> None:
    name = topic()
    producer().send(name, b"x", partition=0).get(20)
    reader = consumer(TopicPartition(name, 0), auto_offset_reset="none")
    reader.seek(TopicPartition(name, 0), 9)
    with pytest.raises((OffsetOutOfRangeError, NoOffsetForPartitionError)):
        take(reader, 1)


def test_offsets_by_time(topic: TopicMaker, producer: Any, consumer: Any, admin: Any) -> None:
    name = topic()
    partition = TopicPartition(name, 0)
    client = producer()
    for i, stamp in enumerate([T0, T0 + 1000, T0 + 9000, T0 + 3000]):
        client.send(name, str(i).encode(), partition=0, timestamp_ms=stamp).get(20)
    reader = consumer(partition)
    assert reader.beginning_offsets([partition]) == {partition: 0}
    assert reader.end_offsets([partition]) == {partition: 4}
    for stamp, offset, at in ((T0 - 5, 0, T0), (T0 + 1, 1, T0 + 1000), (T0 + 2000, 2, T0 + 9000)):
        found = reader.offsets_for_times({partition: stamp})[partition]
        assert (found.offset, found.timestamp) == (offset, at)
    assert reader.offsets_for_times({partition: T0 + 9001})[partition] is None
    found = admin.list_partition_offsets({partition: OffsetSpec.MAX_TIMESTAMP})[partition]
    assert (found.offset, found.timestamp) == (2, T0 + 9000)


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_isolation_levels(topic: TopicMaker, producer: Any, consumer: Any, level: str) -> None:
    name = topic()
    producer().send(name, b"x", partition=0).get(20)
    assert len(take(consumer(TopicPartition(name, 0), isolation_level=level), 1)) == 1


def test_a_long_poll_ends_when_a_message_comes(
    topic: TopicMaker, producer: Any, consumer: Any
) -> None:
    name = topic()
    reader = consumer(TopicPartition(name, 0), fetch_max_wait_ms=20_000, fetch_min_bytes=1)
    reader.poll(timeout_ms=200)
    client = producer()
    client.partitions_for(name)
    started = time.monotonic()
    client.send(name, b"x", partition=0)
    assert take(reader, 1)[0].value == b"x"
    assert time.monotonic() - started < 10


def test_topics(node: BrokerProcess, admin: Any, topic_name: Callable[[], str]) -> None:
    name = topic_name()
    new = NewTopic(name, 3, 1, topic_configs={"cleanup.policy": "compact"})
    [created] = admin.create_topics([new], wait_for_metadata=True)["topics"]
    assert (created["num_partitions"], created["replication_factor"]) == (3, 1)
    assert created["configs"]["cleanup.policy"]["value"] == "compact"
    [found] = admin.describe_topics([name])
    assert [
        p["partition_index"]
        for p in sorted(found["partitions"], key=lambda p: p["partition_index"])
    ] == [0, 1, 2]
    assert found["topic_id"] == created["topic_id"]
    admin.create_partitions({name: 4})
    eventually(lambda: len(admin.describe_topics([name])[0]["partitions"]) == 4)
    admin.delete_topics([name])
    eventually(lambda: name not in admin.list_topics())


@pytest.mark.parametrize(
    ("new", "error"),
    [
        (NewTopic("bad name", 1, 1), InvalidTopicError),
        (NewTopic("never-made", 0, 1), InvalidPartitionsError),
        (NewTopic("never-made", 1, 9), InvalidReplicationFactorError),
        (NewTopic("never-made", 1, 0), InvalidReplicationFactorError),
        (NewTopic("never-made", 1, 1, topic_configs={"no.such": "1"}), InvalidConfigurationError),
        (
            NewTopic("never-made", 1, 1, topic_configs={"retention.ms": "x"}),
            InvalidConfigurationError,
        ),
    ],
)
def test_topics_that_cannot_be_made(admin: Any, new: NewTopic, error: type[Exception]) -> None:
    with pytest.raises(error):
        admin.create_topics([new])


def test_errors_about_topics(admin: Any, topic: TopicMaker, topic_name: Callable[[], str]) -> None:
    name = topic(partitions=2)
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(name, 1, 1)])
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({name: 1})
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic_name()])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.create_partitions({topic_name(): 3})


def test_describe_topic_partitions_in_pages(admin: Any, topic: TopicMaker) -> None:
    first, second = sorted((topic(partitions=3), topic(partitions=3)))
    seen: list[tuple[str, int]] = []
    cursor = None
    for _ in range(10):
        page = admin.describe_topic_partitions([first, second], 2, cursor)
        seen += [(t["name"], p["partition_index"]) for t in page["topics"] for p in t["partitions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [(name, p) for name in (first, second) for p in range(3)]


def test_settings(admin: Any, topic: TopicMaker) -> None:
    name = topic()

    def value(setting: str) -> str:
        found = admin.describe_configs([ConfigResource("topic", name)], config_filter="all")
        return str(found["topic"][name][setting]["value"])

    assert value("retention.ms") == "604800000"
    admin.alter_configs([ConfigResource("topic", name, {"retention.ms": "5000"})])
    eventually(lambda: value("retention.ms") == "5000")
    admin.reset_configs([ConfigResource("topic", name, ["retention.ms"])])
    eventually(lambda: value("retention.ms") == "604800000")
    refused = admin.alter_configs([ConfigResource("topic", name, {"retention.ms": "soon"})])
    assert "retention.ms" in refused["topic"][name]
    assert refused["topic"][name] != "OK"


def test_list_config_resources(admin: Any, topic: TopicMaker) -> None:
    name = topic()
    found = admin.list_config_resources()
    assert name in found["topic"]
    assert len(found["broker"]) == 1


def test_delete_records(admin: Any, topic: TopicMaker, producer: Any) -> None:
    name = topic()
    client = producer()
    for i in range(5):
        client.send(name, str(i).encode(), partition=0).get(20)
    partition = TopicPartition(name, 0)
    assert admin.delete_records({partition: 3})[partition]["low_watermark"] == 3
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({partition: 6})


def test_describe_log_dirs(
    node: BrokerProcess, admin: Any, topic: TopicMaker, producer: Any
) -> None:
    name = topic(partitions=2)
    producer().send(name, b"x" * 1000, partition=1).get(20)
    [broker] = admin.describe_log_dirs()
    [log_dir] = broker["log_dirs"]
    assert log_dir["error_code"] == 0
    assert log_dir["log_dir"] == str(node.data_dir)
    [found] = [t for t in log_dir["topics"] if t["name"] == name]
    sizes = {p["partition_index"]: p["partition_size"] for p in found["partitions"]}
    assert sizes[0] == 0
    assert sizes[1] > 1000


def test_describe_producers(admin: Any, topic: TopicMaker, producer: Any) -> None:
    name = topic()
    client = producer(enable_idempotence=True)
    for _ in range(3):
        answer = client.send(name, b"x", partition=0).get(20)
    partition = TopicPartition(name, 0)
    [state] = admin.describe_producers([partition])[partition].active_producers
    assert state.producer_id >= 0
    assert (state.producer_epoch, state.last_sequence) == (0, 2)
    assert state.last_timestamp == answer.timestamp
    assert state.current_transaction_start_offset == -1


def test_describe_cluster(node: BrokerProcess, admin: Any) -> None:
    found = admin.describe_cluster()
    [broker] = found["brokers"]
    assert (broker["host"], broker["port"], broker["is_fenced"]) == ("127.0.0.1", node.port, False)
    assert found["controller_id"] == broker["broker_id"]
