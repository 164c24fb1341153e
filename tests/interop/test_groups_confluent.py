"""Groups of confluent-kafka consumers: three classic assignors and the consumer protocol."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from support.groups import (
    SESSION_SECONDS,
    STRATEGIES,
    Member,
    members,
    partitions_of,
    polled,
    publish,
    settle,
)
from support.helpers import TopicMaker, admin, consumer, make_topic, produce_all, producer
from support.process import BrokerProcess
from support.waiting import CALL_SECONDS_MAX, eventually

T0 = 1_700_000_000_000
MEMBER_SCRIPT = Path(__file__).parents[1] / "support" / "group_member.py"
BOTH = ["range", "consumer"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_members_share_join_and_leave(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str, strategy: str
) -> None:
    name, everything = group_topic(partitions=4), partitions_of
    settings = STRATEGIES[strategy]
    with members() as made:
        made.append(Member(group_node, group_id, [name], settings))
        settle(made, everything(name, 4))
        for _ in range(2):
            made.append(Member(group_node, group_id, [name], settings))
        settle(made, everything(name, 4))
        sent = [f"{i:03}" for i in range(40)]
        publish(group_node, name, sent, partitions=4)
        assert polled(made, len(sent)) == sent, "each message comes once"
        made.pop(0).close()
        settle(made, everything(name, 4))


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "consumer"])
def test_what_need_not_move_stays(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str, strategy: str
) -> None:
    name = group_topic(partitions=6)
    with members() as made:
        for _ in range(2):
            made.append(Member(group_node, group_id, [name], STRATEGIES[strategy]))
        settle(made, partitions_of(name, 6), most=3)
        before = [member.owned for member in made]
        made.append(Member(group_node, group_id, [name], STRATEGIES[strategy]))
        settle(made, partitions_of(name, 6), most=2)
        stayed = [len(old & member.owned) for old, member in zip(before, made, strict=False)]
        assert stayed == [2, 2], "each of the two gives one away"


@pytest.mark.parametrize("strategy", BOTH)
def test_a_killed_member_is_replaced_after_its_timeout(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str, strategy: str
) -> None:
    name = group_topic(partitions=2)
    settings = STRATEGIES[strategy]
    argument = {"bootstrap.servers": group_node.bootstrap, "group.id": group_id, **settings}
    other = subprocess.Popen(
        [sys.executable, str(MEMBER_SCRIPT), json.dumps(argument), name],
        stdout=subprocess.PIPE,
        text=True,
    )
    with members() as made:
        made.append(Member(group_node, group_id, [name], settings))
        try:
            # The other says what it owns; this one polls on meanwhile.
            eventually(lambda: made[0].poll() or len(made[0].owned) == 1, every=0)
        finally:
            other.kill()
            other.communicate()
        killed = time.monotonic()
        settle(made, partitions_of(name, 2))
        waited = time.monotonic() - killed
    # Its last heartbeat may have been a whole interval, 0.2 s, before it was killed.
    assert SESSION_SECONDS - 0.3 <= waited <= SESSION_SECONDS + 10.0


@pytest.mark.parametrize("strategy", BOTH)
def test_a_static_member_comes_back_without_a_rebalance(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str, strategy: str
) -> None:
    name = group_topic(partitions=2)

    def join(instance: str) -> Member:
        settings = {**STRATEGIES[strategy], "group.instance.id": instance}
        return Member(group_node, group_id, [name], settings)

    with members() as made:
        made += [join("a"), join("b")]
        settle(made, partitions_of(name, 2))
        had, changes = made[1].owned, made[0].changes
        made.pop().close()
        made.append(join("b"))
        settle(made, partitions_of(name, 2))
        assert made[1].owned == had
        assert made[0].changes == changes, "the other has not noticed"


@pytest.mark.parametrize("strategy", BOTH)
def test_commits_carry_metadata_and_are_resumed_from(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str, strategy: str
) -> None:
    name = group_topic()
    publish(group_node, name, "abcdef")
    with members() as made:
        made.append(Member(group_node, group_id, [name], STRATEGIES[strategy]))
        settle(made, partitions_of(name, 1))
        offsets = [TopicPartition(name, 0, 4, metadata="wie weit: ß")]
        made[0].client.commit(offsets=offsets, asynchronous=False)
        [found] = made[0].client.committed([TopicPartition(name, 0)], timeout=CALL_SECONDS_MAX)
        assert (found.offset, found.metadata) == (4, "wie weit: ß")
        made.pop().close()
        made.append(Member(group_node, group_id, [name], STRATEGIES[strategy]))
        assert polled(made, 2) == ["e", "f"]


@pytest.mark.parametrize("strategy", BOTH)
def test_where_a_group_begins(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str, strategy: str
) -> None:
    name = group_topic()
    publish(group_node, name, "abc")
    settings = STRATEGIES[strategy]
    with members() as made:
        for reset in ("earliest", "latest", "error"):
            group, config = f"{group_id}-{reset}", {**settings, "auto.offset.reset": reset}
            made.append(Member(group_node, group, [name], config))
        early, late, none = made
        settle([late], partitions_of(name, 1))
        # `latest` is looked up when fetching begins; the position shows that it has.
        here = TopicPartition(name, 0)
        eventually(
            lambda: late.poll() or late.client.get_watermark_offsets(here, cached=True)[1] == 3
        )
        publish(group_node, name, "d")
        assert polled([early], 4) == ["a", "b", "c", "d"]
        assert polled([late], 1) == ["d"]
        eventually(lambda: none.poll() or none.errors)
        assert none.errors[0].code() == KafkaError._AUTO_OFFSET_RESET


def test_a_group_begins_at_a_time(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str
) -> None:
    name = group_topic()
    messages = [{"value": str(i), "timestamp": T0 + 1000 * i} for i in range(10)]
    produce_all(producer(group_node), name, messages)
    with members() as made:
        made.append(Member(group_node, group_id, [name], STRATEGIES["range"]))
        settle(made, partitions_of(name, 1))
        client = made[0].client
        wanted = [TopicPartition(name, 0, T0 + 6500)]
        client.commit(offsets=client.offsets_for_times(wanted, timeout=20), asynchronous=False)
        made.pop().close()
        made.append(Member(group_node, group_id, [name], STRATEGIES["range"]))
        assert polled(made, 3) == ["7", "8", "9"]


@pytest.mark.parametrize("strategy", BOTH)
def test_new_partitions_are_shared_too(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str, strategy: str
) -> None:
    name = group_topic()
    settings = {**STRATEGIES[strategy], "topic.metadata.refresh.interval.ms": 300}
    with members() as made:
        made.append(Member(group_node, group_id, [name], settings))
        settle(made, partitions_of(name, 1))
        admin(group_node).create_partitions([NewPartitions(name, 3)])[name].result(20)
        settle(made, partitions_of(name, 3))


@pytest.mark.parametrize("strategy", BOTH)
def test_subscription_by_an_expression(
    group_node: BrokerProcess, topic_name: Callable[[], str], group_id: str, strategy: str
) -> None:
    base = topic_name()
    names = [make_topic(group_node, f"{base}-{end}") for end in ("red", "green")]
    make_topic(group_node, f"{base}-other")
    with members() as made:
        made.append(Member(group_node, group_id, [f"^{base}-(red|green)$"], STRATEGIES[strategy]))
        settle(made, {(name, 0) for name in names})


def test_a_group_moves_to_the_consumer_protocol_and_back(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str
) -> None:
    name = group_topic(partitions=4)
    classic, newer = STRATEGIES["cooperative-sticky"], STRATEGIES["consumer"]
    sent: list[str] = []

    def go_on(sharing: list[Member]) -> None:
        """Everyone gets what is published next, and commits it."""
        settle(sharing, partitions_of(name, 4))
        fresh = [f"{i:03}" for i in range(len(sent), len(sent) + 8)]
        sent.extend(fresh)
        for member in sharing:
            member.values.clear()
        publish(group_node, name, fresh, partitions=4)
        assert polled(sharing, 8) == fresh
        for member in sharing:
            member.client.commit(asynchronous=False)

    with members() as made:
        made.append(Member(group_node, group_id, [name], classic))
        go_on(made)
        assert group_type(group_node, group_id) is ConsumerGroupType.CLASSIC
        made.append(Member(group_node, group_id, [name], newer))
        go_on(made)
        assert group_type(group_node, group_id) is ConsumerGroupType.CONSUMER
        made.pop(0).close()
        go_on(made)
        made.append(Member(group_node, group_id, [name], classic))
        go_on(made)
        assert group_type(group_node, group_id) is ConsumerGroupType.CONSUMER
        made.pop(0).close()
        go_on(made)
        assert group_type(group_node, group_id) is ConsumerGroupType.CLASSIC


def group_type(broker: BrokerProcess, group: str) -> ConsumerGroupType:
    found = admin(broker).list_consumer_groups(request_timeout=20).result(20)
    [listed] = [g for g in found.valid or () if g.group_id == group]
    return listed.type


@pytest.mark.parametrize("strategy", BOTH)
def test_admin(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str, strategy: str
) -> None:
    name, client = group_topic(partitions=2), admin(group_node)
    publish(group_node, name, "abcd", partitions=2)
    kind = ConsumerGroupType.CONSUMER if strategy == "consumer" else ConsumerGroupType.CLASSIC

    def listed(**filters: Any) -> bool:
        found = client.list_consumer_groups(request_timeout=20, **filters).result(20)
        assert not found.errors
        return group_id in {group.group_id for group in found.valid or ()}

    def described() -> Any:
        return client.describe_consumer_groups([group_id])[group_id].result(20)

    def alter(offset: int) -> int | None:
        wanted = [TopicPartition(name, 0, offset)]
        asked = [ConsumerGroupTopicPartitions(group_id, wanted)]
        done = client.alter_consumer_group_offsets(asked)[group_id].result(20)
        error = done.topic_partitions[0].error
        return None if error is None else error.code()

    with members() as made:
        made.append(Member(group_node, group_id, [name], STRATEGIES[strategy]))
        settle(made, partitions_of(name, 2))
        assert listed(states={ConsumerGroupState.STABLE}, types={kind})
        assert not listed(states={ConsumerGroupState.EMPTY})
        found = described()
        assert (found.state, found.type) == (ConsumerGroupState.STABLE, kind)
        assert found.partition_assignor == ("uniform" if strategy == "consumer" else "range")
        [member] = found.members
        owned = {(p.topic, p.partition) for p in member.assignment.topic_partitions}
        assert owned == partitions_of(name, 2)
        with pytest.raises(KafkaException) as refused:
            client.delete_consumer_groups([group_id])[group_id].result(20)
        assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
        assert alter(1) == KafkaError.UNKNOWN_MEMBER_ID
    eventually(lambda: described().state is ConsumerGroupState.EMPTY)
    assert alter(1) is None
    asked = [ConsumerGroupTopicPartitions(group_id)]
    offsets = client.list_consumer_group_offsets(asked)[group_id].result(20).topic_partitions
    assert [(p.topic, p.partition, p.offset) for p in offsets] == [(name, 0, 1)]
    client.delete_consumer_groups([group_id])[group_id].result(20)
    assert not listed()


def test_a_consumer_that_only_stores_offsets(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str
) -> None:
    name = group_topic()
    publish(group_node, name, "abc")
    client = consumer(group_node, group_id=group_id)
    client.assign([TopicPartition(name, 0, 0)])
    client.commit(offsets=[TopicPartition(name, 0, 2)], asynchronous=False)
    client.close()
    again = consumer(group_node, group_id=group_id)
    [found] = again.committed([TopicPartition(name, 0)], timeout=CALL_SECONDS_MAX)
    again.close()
    assert found.offset == 2
