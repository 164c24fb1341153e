"""Groups of aiokafka consumers: classic protocol in old versions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import NoOffsetForPartitionError
from aiokafka.structs import OffsetAndMetadata

from support.groups import publish
from support.helpers import TopicMaker
from support.process import BrokerProcess

CASE_SECONDS_MAX = 60.0
ASSIGNORS = [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor]


def run(case: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(case, CASE_SECONDS_MAX)

    asyncio.run(bounded())


def member(broker: BrokerProcess, group: str, topic: str, **config: Any) -> AIOKafkaConsumer:
    base = {
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 200,
        "session_timeout_ms": 6000,
    }
    return AIOKafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, group_id=group, **(base | config)
    )


async def settle(sharing: list[AIOKafkaConsumer], topic: str, partitions: int) -> None:
    """Waits until the members share all partitions."""
    deadline = time.monotonic() + 20
    wanted = {TopicPartition(topic, p) for p in range(partitions)}
    while True:
        owned = [client.assignment() for client in sharing]
        if all(owned) and sum(map(len, owned)) == partitions and set().union(*owned) == wanted:
            return
        assert time.monotonic() < deadline, f"still not shared: {owned}"
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_members_share_join_and_leave(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str, assignor: Any
) -> None:
    name = group_topic(partitions=4)
    config = {"partition_assignment_strategy": [assignor]}

    async def case() -> None:
        async with member(group_node, group_id, name, **config) as second:
            async with member(group_node, group_id, name, **config) as first:
                await settle([first, second], name, 4)
            await settle([second], name, 4)

    run(case())


def test_commit_with_metadata_and_resume(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str
) -> None:
    name = group_topic()
    publish(group_node, name, "abcdef")
    here = TopicPartition(name, 0)

    async def case() -> None:
        async with member(group_node, group_id, name) as client:
            got = [(await client.getone()).value for _ in range(6)]
            assert got == [b"a", b"b", b"c", b"d", b"e", b"f"]
            await client.commit({here: OffsetAndMetadata(4, "so far")})
            assert await client.committed(here) == 4
        async with member(group_node, group_id, name) as client:
            assert [(await client.getone()).value for _ in range(2)] == [b"e", b"f"]

    run(case())


def test_where_a_group_begins(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str
) -> None:
    name = group_topic()
    publish(group_node, name, "abc")

    async def case() -> None:
        late, none = group_id + "-late", group_id + "-none"
        async with member(group_node, late, name, auto_offset_reset="latest") as client:
            await settle([client], name, 1)
            assert await client.position(TopicPartition(name, 0)) == 3
        async with member(group_node, none, name, auto_offset_reset="none") as client:
            with pytest.raises(NoOffsetForPartitionError):
                await client.getone()

    run(case())


def test_a_static_member_comes_back_without_a_rebalance(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str
) -> None:
    name = group_topic(partitions=2)

    def join(instance: str) -> AIOKafkaConsumer:
        return member(group_node, group_id, name, group_instance_id=instance)

    async def case() -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(join("a"))
            async with join("b") as second:
                await settle([first, second], name, 2)
                had = second.assignment()
                generation = first._coordinator.generation
            async with join("b") as again:
                await settle([first, again], name, 2)
                assert again.assignment() == had
                assert first._coordinator.generation == generation

    run(case())


def test_admin(group_node: BrokerProcess, group_topic: TopicMaker, group_id: str) -> None:
    name = group_topic()

    async def case() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=group_node.bootstrap)
        await admin.start()
        try:
            async with member(group_node, group_id, name, client_id="aio") as client:
                await settle([client], name, 1)
                await client.commit({TopicPartition(name, 0): 0})
                assert (group_id, "consumer") in await admin.list_consumer_groups()
                [answer] = await admin.describe_consumer_groups([group_id])
                [described] = answer.groups
                assert described[:3] == (0, group_id, "Stable")
            offsets = await admin.list_consumer_group_offsets(group_id)
            assert {tp: meta.offset for tp, meta in offsets.items()} == {TopicPartition(name, 0): 0}
        finally:
            await admin.close()

    run(case())
