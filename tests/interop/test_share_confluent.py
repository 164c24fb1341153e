"""Share groups of confluent-kafka consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.features import enable_feature
from support.helpers import make_topic, produce_all, producer
from support.node import NodeProcess
from support.process import BrokerProcess
from support.raw import RawClient
from support.share_groups import (
    ACCEPT,
    REJECT,
    RELEASE,
    SHARE_SETTINGS,
    ShareMember,
    counts,
    set_group,
    share_member,
    values,
)
from support.share_workers import ShareWorker
from support.waiting import eventually

SECONDS_MAX = 10.0
"""Locks last three times as long: what comes within this time was nobody else's before."""


@pytest.fixture(scope="module")
def share_node(
    broker_maker: Callable[[Path], BrokerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    broker = broker_maker(tmp_path_factory.mktemp("share-node"))
    broker.settings |= SHARE_SETTINGS
    with broker:
        if broker.KIND == "kafka":
            enable_feature(broker.bootstrap, "share.version")
        yield broker


@pytest.fixture
def share_group(share_node: BrokerProcess, group_id: str) -> str:
    """A group that begins with the earliest record."""
    with RawClient(share_node.host, share_node.port) as client:
        set_group(client, group_id, share_auto_offset_reset="earliest")
    return group_id


def publish(
    broker: BrokerProcess, topic: str, *sent: str, partitions: int = 1, **settings: str
) -> None:
    messages = [
        {"value": value.encode(), "partition": number % partitions}
        for number, value in enumerate(sent)
    ]
    produce_all(producer(broker, **settings), topic, messages)


def configure(broker: BrokerProcess, group: str, **settings: str) -> None:
    with RawClient(broker.host, broker.port) as client:
        set_group(client, group, **settings)


class ShareMembers:
    """Some members of a group, for as long as a `with` lasts."""

    def __init__(self, broker: BrokerProcess, group: str, topic: str, count: int) -> None:
        self._members = [ShareMember(broker.bootstrap, group, topic) for _ in range(count)]

    def __enter__(self) -> list[ShareMember]:
        return self._members

    def __exit__(self, *_: object) -> None:
        for member in self._members:
            member.close()


def test_messages_are_shared_and_each_comes_once(
    share_node: BrokerProcess, share_group: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    make_topic(share_node, topic)
    sent = [f"{n:04}" for n in range(300)]
    publish(share_node, topic, *sent)
    with share_member(share_node.bootstrap, share_group, topic) as member:
        assert sorted(values(member.take(300))) == [value.encode() for value in sent]
        assert member.poll(1.0) == []


def test_what_is_given_back_comes_again_and_what_is_rejected_does_not(
    share_node: BrokerProcess, share_group: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    make_topic(share_node, topic)
    publish(share_node, topic, "a", "b", "c")
    with share_member(share_node.bootstrap, share_group, topic) as member:
        first, second, third = member.next()
        member.client.acknowledge(first, ACCEPT)
        member.client.acknowledge(second, RELEASE)
        member.say(REJECT, third)
        [again] = member.next()
        assert (again.value(), again.delivery_count()) == (b"b", 2)
        member.say(ACCEPT, again)
        assert member.poll(1.0) == []


def test_a_record_that_nobody_can_do_is_set_aside(
    share_node: BrokerProcess, share_group: str, topic_name: Callable[[], str]
) -> None:
    """It comes as often as the group allows, more and more alone, and the others are done."""
    configure(share_node, share_group, share_delivery_count_limit="4")
    topic = topic_name()
    make_topic(share_node, topic)
    sent = [f"{n}" for n in range(8)]
    publish(share_node, topic, *sent)
    done, bad = [], []
    with share_member(share_node.bootstrap, share_group, topic) as member:
        while len(done) < len(sent) - 1 or len(bad) < 4:
            got = member.next()
            poisoned = any(message.value() == b"5" for message in got)
            bad += [m.delivery_count() for m in got if m.value() == b"5"]
            member.say(RELEASE if poisoned else ACCEPT, *got)
            done += [] if poisoned else values(got)
        assert member.poll(1.0) == []
    assert bad == [1, 2, 3, 4]
    assert sorted(done) == sorted(value.encode() for value in sent if value != "5")


def test_what_a_killed_member_held_is_free_at_once(
    share_node: BrokerProcess, share_group: str, topic_name: Callable[[], str]
) -> None:
    """Long before its locks run out, and before the group misses it."""
    configure(share_node, share_group, share_record_lock_duration_ms="60000")
    topic = topic_name()
    make_topic(share_node, topic)
    publish(share_node, topic, "a", "b")
    holder = ShareWorker("confluent", share_node.bootstrap, share_group, topic, holds="1")
    try:
        eventually(lambda: holder.has_work)
        with share_member(share_node.bootstrap, share_group, topic) as member:
            assert member.poll(1.0) == []
            holder.kill()
            got = member.take(2, seconds=10)
            assert sorted(values(got)) == [b"a", b"b"]
            assert counts(got) == {2}
    finally:
        holder.end()


def test_a_member_that_holds_on_to_what_it_gets_does_not_stop_the_others(
    share_node: BrokerProcess, share_group: str, topic_name: Callable[[], str]
) -> None:
    """Others have what comes then, and in the end what it holds."""
    configure(share_node, share_group, share_record_lock_duration_ms="5000")
    topic = topic_name()
    make_topic(share_node, topic)
    first, second = [[f"{turn}-{n:03}".encode() for n in range(100)] for turn in (1, 2)]
    with ShareMembers(share_node, share_group, topic, 2) as (greedy, member):
        publish(share_node, topic, *map(bytes.decode, first))
        held = greedy.next()
        assert values(held) == first
        publish(share_node, topic, *map(bytes.decode, second))
        assert values(member.take(len(second))) == second
        late = member.take(len(first))
        assert (values(late), counts(late)) == (first, {2})


def test_a_member_that_rejects_everything_does_not_stop_the_others(
    share_node: BrokerProcess, share_group: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    make_topic(share_node, topic, 2)
    sent = [f"{n:04}".encode() for n in range(400)]
    rejected, done = [], []
    with ShareMembers(share_node, share_group, topic, 2) as (bad, good):
        publish(share_node, topic, *[value.decode() for value in sent], partitions=2)

        def all_said() -> bool:
            for member, kind, said in ((bad, REJECT, rejected), (good, ACCEPT, done)):
                if got := member.poll():
                    member.say(kind, *got)
                    said += values(got)
            return len(rejected) + len(done) >= len(sent)

        eventually(all_said)
        assert sorted(rejected + done) == sent
        assert done
        assert good.poll(1.0) == []


@pytest.mark.penstock_only
def test_many_members_on_few_partitions(
    share_node: NodeProcess, share_group: str, topic_name: Callable[[], str]
) -> None:
    """With default settings each of them has something to do; Kafka gives all to the first four."""
    topic = topic_name()
    make_topic(share_node, topic, 2)
    members = 12
    with ShareMembers(share_node, share_group, topic, members) as joined:

        def all_fetch() -> bool:
            for member in joined:
                assert member.poll(0.05) == []
            return share_node.metric("penstock_share_sessions") == members

        eventually(all_fetch)
        sent = [f"{n:05}" for n in range(6000)]
        publish(share_node, topic, *sent, partitions=2, batch_num_messages="100")
        for member in joined:
            member.next(SECONDS_MAX)
