"""Committed offsets outlive the broker, whether it stops or is killed, for every client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition
from kafka.structs import OffsetAndMetadata

from support.group_calls import connected
from support.groups import (
    STRATEGIES,
    Member,
    members,
    partitions_of,
    polled,
    publish,
    settle,
)
from support.helpers import make_topic
from support.process import BrokerProcess

TOPIC = "t"
VALUES = "abcdef"


def commit_by_confluent(broker: BrokerProcess, strategy: str, offset: int) -> None:
    with members() as made:
        made.append(Member(broker, strategy, [TOPIC], STRATEGIES[strategy]))
        settle(made, partitions_of(TOPIC, 1))
        offsets = [TopicPartition(TOPIC, 0, offset)]
        made[0].client.commit(offsets=offsets, asynchronous=False)


def read_by_confluent(broker: BrokerProcess, strategy: str, count: int) -> str:
    with members() as made:
        made.append(Member(broker, strategy, [TOPIC], STRATEGIES[strategy]))
        return "".join(polled(made, count))


def commit_by_kafka_python(broker: BrokerProcess, offset: int) -> None:
    client = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id="kafka-python")
    client.assign([PythonPartition(TOPIC, 0)])
    client.commit({PythonPartition(TOPIC, 0): OffsetAndMetadata(offset, "", -1)})
    client.close(autocommit=False)


def committed_in_kafka_python(broker: BrokerProcess) -> int | None:
    client = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id="kafka-python")
    found = client.committed(PythonPartition(TOPIC, 0))
    client.close(autocommit=False)
    return found


def by_aiokafka(broker: BrokerProcess, offset: int | None = None) -> int | None:
    """Commits an offset if one is given; returns what is committed."""

    async def case() -> int | None:
        async with AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap, group_id="aiokafka", enable_auto_commit=False
        ) as client:
            here = AioPartition(TOPIC, 0)
            client.assign([here])
            if offset is not None:
                await client.commit({here: offset})
            return await client.committed(here)

    return asyncio.run(asyncio.wait_for(case(), 30))


def commit_everywhere(broker: BrokerProcess, offset: int) -> None:
    for strategy in ("range", "consumer"):
        commit_by_confluent(broker, strategy, offset)
    commit_by_kafka_python(broker, offset)
    assert by_aiokafka(broker, offset) == offset


def check_everywhere(broker: BrokerProcess, offset: int) -> None:
    with connected(broker, "range"):
        pass  # the coordinator has read its groups
    rest = VALUES[offset:]
    for strategy in ("range", "consumer"):
        assert read_by_confluent(broker, strategy, len(rest)) == rest
    assert committed_in_kafka_python(broker) == offset
    assert by_aiokafka(broker) == offset


def test_groups_resume_where_they_were(fresh_group_node: BrokerProcess) -> None:
    broker = fresh_group_node
    make_topic(broker, TOPIC)
    publish(broker, TOPIC, VALUES)
    commit_everywhere(broker, 2)
    broker.restart()
    check_everywhere(broker, 2)
    commit_everywhere(broker, 4)
    broker.kill()
    broker.start()
    check_everywhere(broker, 4)


@pytest.mark.parametrize("end", [BrokerProcess.stop, BrokerProcess.kill])
@pytest.mark.parametrize("strategy", ["cooperative-sticky", "consumer"])
def test_members_go_on_when_the_broker_is_back(
    fresh_group_node: BrokerProcess, strategy: str, end: Callable[[BrokerProcess], None]
) -> None:
    broker = fresh_group_node
    make_topic(broker, TOPIC, 2)
    with members() as made:
        for _ in range(2):
            settings = {**STRATEGIES[strategy], "reconnect.backoff.max.ms": 300}
            made.append(Member(broker, "g", [TOPIC], settings))
        settle(made, partitions_of(TOPIC, 2))
        publish(broker, TOPIC, "ab", partitions=2)
        assert polled(made, 2) == ["a", "b"]
        for member in made:
            member.client.commit(asynchronous=False)
        end(broker)
        broker.start()
        settle(made, partitions_of(TOPIC, 2))
        publish(broker, TOPIC, "cd", partitions=2)
        assert polled(made, 4) == ["a", "b", "c", "d"], "nothing comes twice, nothing is missing"
