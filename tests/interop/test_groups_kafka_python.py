"""Groups of kafka-python consumers: classic protocol, admin client."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import NoOffsetForPartitionError
from kafka.structs import OffsetAndMetadata

from support.groups import publish
from support.helpers import TopicMaker
from support.process import BrokerProcess
from support.waiting import eventually

POLL_MS = 300
"""Longer than a heartbeat's interval, by which members hear of a rebalance."""
ASSIGNORS = [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor]


@pytest.fixture
def made() -> Iterator[list[KafkaConsumer]]:
    """Consumers of this test, closed at its end."""
    consumers: list[KafkaConsumer] = []
    yield consumers
    for client in consumers:
        client.close(autocommit=False)


def member(broker: BrokerProcess, group: str, topic: str, **config: Any) -> KafkaConsumer:
    base = {
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 200,
        "session_timeout_ms": 6000,
        "metadata_max_age_ms": 500,
    }
    client = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, **(base | config))
    # A leader that has not heard of the topic when it is asked to assign gives nothing to anyone,
    # and does not come back to it.
    client.subscribe([topic])
    eventually(lambda: client.partitions_for_topic(topic))
    return client


def settle(sharing: list[KafkaConsumer], topic: str, partitions: int) -> list[bytes]:
    """Polls until the members share all partitions; returns the values that came meanwhile.

    All of them at once: kafka-python throws away what comes of a join that ends between two polls
    and joins once more, so members that are polled one after the other may never be done.
    """
    values: list[bytes] = []
    threads = ThreadPoolExecutor(len(sharing))

    def shared() -> bool:
        for polled in threads.map(lambda client: client.poll(timeout_ms=POLL_MS), sharing):
            for records in polled.values():
                values.extend(record.value for record in records)
        owned = [client.assignment() for client in sharing]
        wanted = {TopicPartition(topic, p) for p in range(partitions)}
        return all(owned) and sum(map(len, owned)) == partitions and set().union(*owned) == wanted

    with threads:
        eventually(shared, every=0)
    return values


def take(client: KafkaConsumer, count: int) -> list[bytes]:
    got: list[bytes] = []

    def enough() -> bool:
        for records in client.poll(timeout_ms=100).values():
            got.extend(record.value for record in records)
        return len(got) >= count

    eventually(enough, every=0)
    return got


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_members_share_join_and_leave(
    group_node: BrokerProcess,
    group_topic: TopicMaker,
    group_id: str,
    made: list[KafkaConsumer],
    assignor: Any,
) -> None:
    name = group_topic(partitions=4)
    config = {"partition_assignment_strategy": [assignor]}
    made.append(member(group_node, group_id, name, **config))
    settle(made, name, 4)
    made.append(member(group_node, group_id, name, **config))
    settle(made, name, 4)
    made.pop(0).close(autocommit=False)
    settle(made, name, 4)


def test_commit_with_metadata_and_resume(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str, made: list[KafkaConsumer]
) -> None:
    name = group_topic()
    publish(group_node, name, "abcdef")
    here = TopicPartition(name, 0)
    made.append(member(group_node, group_id, name))
    assert take(made[0], 6) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    made[0].commit({here: OffsetAndMetadata(4, "so far", -1)})
    found = made[0].committed(here, metadata=True)
    assert (found.offset, found.metadata) == (4, "so far")
    made.pop().close(autocommit=False)
    made.append(member(group_node, group_id, name))
    assert take(made[0], 2) == [b"e", b"f"]


def test_where_a_group_begins(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str, made: list[KafkaConsumer]
) -> None:
    name = group_topic()
    publish(group_node, name, "abc")
    made.append(member(group_node, group_id + "-late", name, auto_offset_reset="latest"))
    settle(made, name, 1)
    assert made[0].position(TopicPartition(name, 0)) == 3
    made.append(member(group_node, group_id + "-none", name, auto_offset_reset="none"))
    with pytest.raises(NoOffsetForPartitionError):
        eventually(lambda: made[1].poll(timeout_ms=100))


def test_a_static_member_comes_back_without_a_rebalance(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str, made: list[KafkaConsumer]
) -> None:
    name = group_topic(partitions=2)
    made += [member(group_node, group_id, name, group_instance_id=i) for i in "ab"]
    settle(made, name, 2)
    had = made[1].assignment()
    generation = made[0]._coordinator.generation_if_stable().generation_id
    made.pop().close(autocommit=False)
    made.append(member(group_node, group_id, name, group_instance_id="b"))
    settle(made, name, 2)
    assert made[1].assignment() == had
    assert made[0]._coordinator.generation_if_stable().generation_id == generation


def test_admin(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str, made: list[KafkaConsumer]
) -> None:
    name = group_topic()
    here = TopicPartition(name, 0)
    made.append(member(group_node, group_id, name, client_id="kp"))
    settle(made, name, 1)
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=group_node.bootstrap)) as admin:
        assert group_id in str(admin.list_groups())
        described = admin.describe_groups([group_id])[group_id]
        assert described["group_state"] == "Stable"
        assert [m["client_id"] for m in described["members"]] == ["kp"]
        assert admin.delete_groups([group_id]) == {group_id: "NonEmptyGroupError"}
        made.pop().close(autocommit=False)
        admin.alter_group_offsets(group_id, {here: OffsetAndMetadata(7, "by admin", -1)})
        found = admin.list_group_offsets(group_id)[group_id][here]
        assert (found.offset, found.metadata) == (7, "by admin")
        admin.delete_group_offsets(group_id, [here])
        assert admin.list_group_offsets(group_id)[group_id] == {}
        assert admin.delete_groups([group_id]) == {group_id: "OK"}
        assert group_id not in str(admin.list_groups())
