"""How groups are described, and what a join by regular expression answers, as in Apache Kafka."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ErrorCode as E
from penstock.coordinator.java_order import hash_map_order
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from support.calls import find_topic
from support.group_calls import await_coordinator, beat, join_request, owned
from support.groups import start_group_broker
from support.helpers import TopicMaker
from support.process import BrokerProcess
from support.raw import RawClient
from support.waiting import eventually

# Orders of Kafka's table, which are neither those of the names nor those in which they come. The
# table starts with two slots; fourteen members make it grow three times.
FEW = ["m2", "m4", "m1", "m3"]
MANY = [
    "member-13",
    "member-3",
    "member-8",
    "member-10",
    "member-0",
    "member-5",
    "member-12",
    "member-2",
    "member-7",
    "member-4",
    "member-9",
    "member-11",
    "member-1",
    "member-6",
]


@pytest.fixture
def raw(group_node: BrokerProcess, group_id: str) -> Iterator[RawClient]:
    with RawClient(group_node.host, group_node.port) as client:
        await_coordinator(client, group_id)
        yield client


def described(client: RawClient, group: str) -> Any:
    [found] = client.call(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups
    return found


def described_classic(client: RawClient, group: str) -> Any:
    [found] = client.call(DescribeGroupsRequest(groups=[group]), 6).groups
    return found


def by_regex(client: RawClient, group: str, member: str, regex: str) -> Any:
    answer = beat(
        client, group, member, 0, subscribed_topic_names=None, subscribed_topic_regex=regex
    )
    assert answer.error_code == 0, answer.error_message
    return answer


def test_a_join_by_an_expression_is_answered_before_it_is_resolved(
    raw: RawClient, group_topic: TopicMaker, group_id: str
) -> None:
    topic = find_topic(raw, group_topic())
    answer = by_regex(raw, group_id, "m", topic.name)
    assert (answer.member_epoch, answer.assignment.topic_partitions) == (1, [])

    later = eventually(lambda: (got := beat(raw, group_id, "m", 1)).member_epoch == 2 and got)
    assert later.assignment.topic_partitions == owned(topic.id, 0)
    found = described(raw, group_id)
    assert (found.group_epoch, found.assignment_epoch, found.group_state) == (2, 2, "Stable")


def test_a_member_without_topics_begins_no_epoch(raw: RawClient, group_id: str) -> None:
    assert beat(raw, group_id, "m", 0, subscribed_topic_names=[]).member_epoch == 1
    assert by_regex(raw, group_id, "n", "no-such-topic-.*").member_epoch == 1
    found = described(raw, group_id)
    assert (found.group_epoch, found.assignment_epoch, found.group_state) == (1, 1, "Stable")


@pytest.mark.parametrize("order", [FEW, MANY], ids=["few", "many"])
def test_the_order_of_a_consumer_groups_members(
    raw: RawClient, group_id: str, order: list[str]
) -> None:
    for member in sorted(order):
        assert beat(raw, group_id, member, 0, subscribed_topic_names=[]).error_code == 0
    assert [member.member_id for member in described(raw, group_id).members] == order


def test_the_order_of_consumer_group_members_after_most_have_left(
    raw: RawClient, group_id: str
) -> None:
    for member in sorted(MANY):
        assert beat(raw, group_id, member, 0, subscribed_topic_names=[]).error_code == 0
    left = MANY[::3]
    for member in set(MANY) - set(left):
        assert beat(raw, group_id, member, -1).error_code == 0
    assert [member.member_id for member in described(raw, group_id).members] == left


def test_the_order_of_a_classic_groups_members(
    group_node: BrokerProcess, raw: RawClient, group_id: str
) -> None:
    # The coordinator makes up the ids, so their order is computed; a unit test has Java's own.
    count = 14
    with contextlib.ExitStack() as stack:
        ids = []
        for _ in range(count):
            client = stack.enter_context(RawClient(group_node.host, group_node.port))
            named = client.call(join_request(group_id), 9)
            client.send(join_request(group_id, named.member_id), 9)
            ids.append(named.member_id)
            eventually(lambda: len(described_classic(raw, group_id).members) == len(ids))
        found = [member.member_id for member in described_classic(raw, group_id).members]
    assert found == hash_map_order(ids, count)


def test_an_empty_group_id_is_told_in_kafkas_words(raw: RawClient, group_id: str) -> None:
    unnamed = beat(raw, "", "m", 0)
    assert (unnamed.error_code, unnamed.error_message) == (
        E.INVALID_REQUEST,
        "GroupId can't be empty.",
    )
    assert beat(raw, "", "", 0).error_message == "MemberId can't be empty.", "it is checked first"
    assert described_classic(raw, "").error_message == "Group  not found."
    assert described(raw, group_id).error_message == f"Group {group_id} not found."
    unknown = beat(raw, group_id, "m", 5)
    assert unknown.error_message == f"Consumer group {group_id} not found."


def test_the_consumer_protocol_switched_off(
    broker_maker: Callable[[Path], BrokerProcess],
    tmp_path: Path,
    brokers: list[BrokerProcess],
    group_id: str,
) -> None:
    broker = broker_maker(tmp_path / "classic-only")
    brokers.append(broker)
    broker.settings["group.coordinator.rebalance.protocols"] = "classic"
    start_group_broker(broker)
    with RawClient(broker.host, broker.port) as client:
        # Nobody coordinates a group yet, as there is no offsets topic: that is not what is said.
        assert described(client, group_id).error_code == E.UNSUPPORTED_VERSION
        assert described(client, "").error_code == E.UNSUPPORTED_VERSION
        assert beat(client, group_id, "m", 0).error_code == E.UNSUPPORTED_VERSION
        await_coordinator(client, group_id)
        assert described(client, group_id).error_code == E.UNSUPPORTED_VERSION
        assert beat(client, group_id, "m", 0).error_code == E.UNSUPPORTED_VERSION


def test_the_consumer_protocol_at_group_version_0(
    broker_maker: Callable[[Path], BrokerProcess],
    tmp_path: Path,
    brokers: list[BrokerProcess],
    group_id: str,
) -> None:
    broker = broker_maker(tmp_path / "group-version-0")
    brokers.append(broker)
    start_group_broker(broker)
    with RawClient(broker.host, broker.port) as client:
        await_coordinator(client, group_id)
        assert beat(client, group_id, "m", 0).error_code == E.NONE
        finalise_group_version(client, 0)
        eventually(lambda: described(client, group_id).error_code == E.UNSUPPORTED_VERSION)
        assert beat(client, group_id, "m", 1).error_code == E.UNSUPPORTED_VERSION
    broker.restart()
    with RawClient(broker.host, broker.port) as client:
        assert described(client, group_id).error_code == E.UNSUPPORTED_VERSION
        assert beat(client, group_id, "m", 1).error_code == E.UNSUPPORTED_VERSION
        finalise_group_version(client, 1)
        await_coordinator(client, group_id)
        eventually(lambda: described(client, group_id).error_code == E.NONE)
        assert beat(client, group_id, "m", 0).error_code == E.NONE


def finalise_group_version(client: RawClient, level: int) -> None:
    kind = 1 if level else 2
    wanted = FeatureUpdateKey(feature="group.version", max_version_level=level, upgrade_type=kind)
    answer = client.call(UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[wanted]), 2)
    assert answer.error_code == E.NONE, answer.error_message
