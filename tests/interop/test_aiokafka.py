"""aiokafka, which speaks old versions (ApiVersions v0, Metadata v5): publish, consume, admin."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    InvalidPartitionsError,
    KafkaError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
)

from support.helpers import TopicMaker
from support.process import BrokerProcess

COMPRESSIONS = (None, "gzip", "snappy", "lz4", "zstd")
T0 = 1_700_000_000_000
CASE_SECONDS_MAX = 60.0


def run(case: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(case, CASE_SECONDS_MAX)

    asyncio.run(bounded())


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + 20
    while not await check():
        assert time.monotonic() < deadline, "still not so after 20 s"
        await asyncio.sleep(0.05)


def consumer(node: BrokerProcess, **config: Any) -> AIOKafkaConsumer:
    base = {"enable_auto_commit": False, "group_id": None, "auto_offset_reset": "none"}
    return AIOKafkaConsumer(bootstrap_servers=node.bootstrap, **(base | config))


async def read(node: BrokerProcess, name: str, count: int, **config: Any) -> list[Any]:
    partition = TopicPartition(name, 0)
    async with consumer(node, **config) as reader:
        reader.assign([partition])
        reader.seek(partition, 0)
        return [await reader.getone() for _ in range(count)]


@pytest.mark.parametrize("codec", COMPRESSIONS)
@pytest.mark.parametrize("idempotent", [False, True])
def test_publish_and_read_back(
    node: BrokerProcess, topic: TopicMaker, codec: str | None, idempotent: bool
) -> None:
    name = topic()
    headers = (("a", b"1"), ("a", b"2"), ("empty", b""))

    async def case() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=node.bootstrap,
            compression_type=codec,
            enable_idempotence=idempotent,
            linger_ms=5,
        ) as client:
            sent = [
                await client.send(
                    name, f"value {i} ".encode() * 20, f"k{i}".encode(), 0, T0 + i, list(headers)
                )
                for i in range(300)
            ]
            answers = await asyncio.gather(*sent)
        assert [answer.offset for answer in answers] == list(range(300))
        got = await read(node, name, 300)
        assert [(m.offset, m.key, m.value, m.timestamp) for m in got] == [
            (i, f"k{i}".encode(), f"value {i} ".encode() * 20, T0 + i) for i in range(300)
        ]
        assert all(tuple(m.headers) == headers for m in got)

    run(case())


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks_and_nulls(node: BrokerProcess, topic: TopicMaker, acks: Any) -> None:
    name = topic()
    pairs = [(None, b"v"), (b"k", None), (b"", b"")]

    async def case() -> None:
        async with AIOKafkaProducer(bootstrap_servers=node.bootstrap, acks=acks) as client:
            for key, value in pairs:
                await client.send_and_wait(name, value, key, partition=0)
        assert [(m.key, m.value) for m in await read(node, name, 3)] == pairs

    run(case())


def test_log_append_time(node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic(config={"message.timestamp.type": "LogAppendTime"})

    async def case() -> None:
        before = int(time.time() * 1000)
        async with AIOKafkaProducer(bootstrap_servers=node.bootstrap) as client:
            answer = await client.send_and_wait(name, b"x", partition=0, timestamp_ms=T0)
        assert answer.timestamp_type == 1
        assert before <= answer.timestamp <= int(time.time() * 1000)
        [message] = await read(node, name, 1)
        assert (message.timestamp, message.timestamp_type) == (answer.timestamp, 1)

    run(case())


def test_messages_of_9_5_megabytes(node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic(config={"max.message.bytes": "10485760"})
    body = bytes(range(256)) * (9_500_000 // 256)

    async def case() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=node.bootstrap, max_request_size=10_485_760
        ) as client:
            for i in range(2):
                await client.send_and_wait(name, bytes([i]) + body, partition=0)
        got = await read(node, name, 2, max_partition_fetch_bytes=1000)
        assert [m.value for m in got] == [b"\x00" + body, b"\x01" + body]

    run(case())


def test_too_large_a_message_is_refused(node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic(config={"max.message.bytes": "1000"})

    async def case() -> None:
        async with AIOKafkaProducer(bootstrap_servers=node.bootstrap) as client:
            with pytest.raises(MessageSizeTooLargeError):
                await client.send_and_wait(name, b"x" * 2000, partition=0)

    run(case())


def test_seek_and_offsets_by_time(node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic()
    partition = TopicPartition(name, 0)

    async def case() -> None:
        async with AIOKafkaProducer(bootstrap_servers=node.bootstrap) as client:
            for i in range(10):
                stamp = T0 + 1000 * i
                await client.send_and_wait(name, str(i).encode(), partition=0, timestamp_ms=stamp)
        async with consumer(node) as reader:
            reader.assign([partition])
            assert await reader.beginning_offsets([partition]) == {partition: 0}
            assert await reader.end_offsets([partition]) == {partition: 10}
            found = (await reader.offsets_for_times({partition: T0 + 2500}))[partition]
            assert (found.offset, found.timestamp) == (3, T0 + 3000)
            assert (await reader.offsets_for_times({partition: T0 + 9001}))[partition] is None
            reader.seek(partition, 7)
            assert (await reader.getone()).value == b"7"
            await reader.seek_to_beginning(partition)
            assert (await reader.getone()).value == b"0"
            await reader.seek_to_end(partition)
            assert await reader.position(partition) == 10
            reader.seek(partition, 99)
            with pytest.raises(OffsetOutOfRangeError):
                await reader.getone()

    run(case())


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_isolation_levels(node: BrokerProcess, topic: TopicMaker, level: str) -> None:
    name = topic()

    async def case() -> None:
        async with AIOKafkaProducer(bootstrap_servers=node.bootstrap) as client:
            await client.send_and_wait(name, b"x", partition=0)
        assert len(await read(node, name, 1, isolation_level=level)) == 1

    run(case())


def test_a_long_poll_ends_when_a_message_comes(node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic()
    partition = TopicPartition(name, 0)

    async def case() -> None:
        async with (
            AIOKafkaProducer(bootstrap_servers=node.bootstrap) as client,
            consumer(node, fetch_max_wait_ms=20_000) as reader,
        ):
            await client.partitions_for(name)
            reader.assign([partition])
            reader.seek(partition, 0)
            waiting = asyncio.create_task(reader.getone())
            await asyncio.sleep(0.3)  # the fetch lies at the broker by now; either way it must end
            started = time.monotonic()
            await client.send_and_wait(name, b"x", partition=0)
            assert (await waiting).value == b"x"
            assert time.monotonic() - started < 10

    run(case())


def codes(answer: Any, field: str) -> list[int]:
    return [entry[1] for entry in getattr(answer, field)]


def test_topics(node: BrokerProcess, topic_name: Callable[[], str]) -> None:
    name = topic_name()

    async def case() -> None:
        client = AIOKafkaAdminClient(bootstrap_servers=node.bootstrap)
        await client.start()
        try:
            made = await client.create_topics([NewTopic(name, 2, 1)])
            assert codes(made, "topic_errors") == [0]
            again = await client.create_topics([NewTopic(name, 2, 1)])
            assert codes(again, "topic_errors") == [36]
            bad = await client.create_topics([NewTopic("no good", 2, 1)])
            assert codes(bad, "topic_errors") == [17]
            added = await client.create_partitions({name: NewPartitions(5)})
            assert codes(added, "topic_errors") == [0]

            async def five() -> bool:
                return len((await client.describe_topics([name]))[0]["partitions"]) == 5

            await eventually(five)
            with pytest.raises(InvalidPartitionsError):
                await client.create_partitions({name: NewPartitions(3)})
            deleted = await client.delete_topics([name])
            assert codes(deleted, "topic_error_codes") == [0]

            async def gone() -> bool:
                return name not in await client.list_topics()

            await eventually(gone)
            missing = await client.delete_topics([name])
            assert codes(missing, "topic_error_codes") == [3]
        finally:
            await client.close()

    run(case())


def test_settings_records_and_cluster(node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic()

    async def case() -> None:
        async with AIOKafkaProducer(bootstrap_servers=node.bootstrap) as producer:
            for _ in range(5):
                await producer.send_and_wait(name, b"x", partition=0)
        client = AIOKafkaAdminClient(bootstrap_servers=node.bootstrap)
        await client.start()
        try:
            cluster = await client.describe_cluster()
            assert [b["port"] for b in cluster["brokers"]] == [node.port]
            resource = ConfigResource(
                ConfigResourceType.TOPIC, name, configs={"retention.ms": "5000"}
            )
            await client.alter_configs([resource])

            async def changed() -> bool:
                [found] = await client.describe_configs([resource])
                entries = found.resources[0][4]
                return [entry[1] for entry in entries if entry[0] == "retention.ms"] == ["5000"]

            await eventually(changed)
            partition = TopicPartition(name, 0)
            low = await client.delete_records({partition: RecordsToDelete(before_offset=2)})
            assert low == {partition: 2}
            with pytest.raises(KafkaError):
                await client.delete_records({partition: RecordsToDelete(before_offset=50)})
        finally:
            await client.close()

    run(case())
