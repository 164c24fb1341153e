"""Share groups of confluent-kafka consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.features import enable_feature
from support.helpers import make_topic, produce_all, producer
from support.process import BrokerProcess
from support.raw import RawClient
from support.share_groups import (
    SHARE_SETTINGS,
    set_group,
    share_member,
    values,
)


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


def publish(broker: BrokerProcess, topic: str, *sent: str) -> None:
    produce_all(producer(broker), topic, [{"value": value.encode()} for value in sent])


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
