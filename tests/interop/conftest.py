"""The brokers of the tests about groups and transactions, with timeouts that tests can wait for."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.groups import start_group_broker
from support.helpers import TopicMaker
from support.process import BrokerProcess
from support.reference import KafkaProcess
from support.transactions import SETTINGS, await_transactions, newest_features

_group_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared_group_node(
    broker_maker: Callable[[Path], BrokerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    broker = broker_maker(tmp_path_factory.mktemp("group-node"))
    yield start_group_broker(broker)
    broker.stop()


@pytest.fixture
def group_node(shared_group_node: BrokerProcess) -> BrokerProcess:
    """The broker that every test about groups shares; it is never stopped by a test."""
    assert shared_group_node.running, "the broker has died:\n" + shared_group_node.log_tail()
    return shared_group_node


@pytest.fixture
def fresh_group_node(
    broker_maker: Callable[[Path], BrokerProcess], tmp_path: Path, brokers: list[BrokerProcess]
) -> BrokerProcess:
    """Such a broker for one test, which may stop it."""
    broker = broker_maker(tmp_path / "fresh")
    brokers.append(broker)
    return start_group_broker(broker)


@pytest.fixture
def group_topic(group_node: BrokerProcess, topic_name: Callable[[], str]) -> TopicMaker:
    """Makes topics on that broker."""
    return TopicMaker(group_node, topic_name)


@pytest.fixture
def group_id() -> str:
    """A group that no other test uses."""
    return f"g-{os.getpid()}-{next(_group_numbers)}"


@pytest.fixture(scope="session")
def shared_txn_node(
    broker_maker: Callable[[Path], BrokerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    broker = broker_maker(tmp_path_factory.mktemp("txn-node"))
    broker.settings |= SETTINGS
    with broker:
        newest_features(broker)
        await_transactions(broker)
        yield broker


@pytest.fixture
def txn_node(shared_txn_node: BrokerProcess) -> BrokerProcess:
    """The broker that every test about transactions shares; it is never stopped by a test."""
    assert shared_txn_node.running, "the broker has died:\n" + shared_txn_node.log_tail()
    return shared_txn_node


@pytest.fixture
def txn_topic(txn_node: BrokerProcess, topic_name: Callable[[], str]) -> TopicMaker:
    """Makes topics on that broker."""
    return TopicMaker(txn_node, topic_name)


@pytest.fixture(scope="session")
def txn_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Apache Kafka as the referee of transactions, whatever the target is."""
    settings = {"auto.create.topics.enable": "false"} | SETTINGS
    with KafkaProcess(tmp_path_factory.mktemp("txn-kafka"), settings) as broker:
        newest_features(broker)
        await_transactions(broker)
        yield broker
