"""Transactions of librdkafka: what is committed is read, what is aborted is not, nothing sticks.

With three nodes: a transaction that is decided is ended in its partitions, also when its
coordinator dies before it could tell them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from support.cluster import Cluster
from support.helpers import QUIET, TopicMaker, take
from support.process import BrokerProcess
from support.waiting import eventually

pytestmark = pytest.mark.timeout(300)

CALL_SECONDS = 30.0
PARTITIONS = 3
ROUNDS = 6


@pytest.fixture
def transactional_id(topic_name: Callable[[], str]) -> str:
    return f"tx-{topic_name()}"


def transactional(bootstrap: str, transactional_id: str, **config: Any) -> Producer:
    client = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            **QUIET,
            **config,
        }
    )
    client.init_transactions(CALL_SECONDS)
    return client


@contextlib.contextmanager
def reading(bootstrap: str, topic: str, isolation: str) -> Iterator[Consumer]:
    """A consumer at the beginning of all partitions."""
    client = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            **QUIET,
        }
    )
    client.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    try:
        yield client
    finally:
        client.close()


def read_all(bootstrap: str, topic: str, isolation: str) -> list[str]:
    """The values of all partitions, up to where each of them ends for the reader."""
    values: list[str] = []
    ended: set[int] = set()
    with reading(bootstrap, topic, isolation) as client:

        def at_end() -> bool:
            for message in client.consume(1_000, timeout=0.2):
                error = message.error()
                if error is None:
                    values.append(message.value().decode())
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(message.partition())
            return len(ended) == PARTITIONS

        eventually(at_end, CALL_SECONDS)
    return sorted(values)


def write(client: Producer, topic: str, values: list[str]) -> None:
    for number, value in enumerate(values):
        client.produce(topic, value, partition=number % PARTITIONS)
    assert client.flush(CALL_SECONDS) == 0


def test_committed_is_read_and_aborted_is_not(
    node: BrokerProcess, topic: TopicMaker, transactional_id: str
) -> None:
    name = topic(partitions=PARTITIONS)
    client = transactional(node.bootstrap, transactional_id)
    committed: list[str] = []
    aborted: list[str] = []
    for number in range(ROUNDS):
        values = [f"{number}-{i}" for i in range(10)]
        client.begin_transaction()
        write(client, name, values)
        if number % 2:
            client.abort_transaction(CALL_SECONDS)
            aborted += values
        else:
            client.commit_transaction(CALL_SECONDS)
            committed += values
    assert read_all(node.bootstrap, name, "read_committed") == sorted(committed)
    assert read_all(node.bootstrap, name, "read_uncommitted") == sorted(committed + aborted)


def test_an_open_transaction_is_not_read(
    node: BrokerProcess, topic: TopicMaker, transactional_id: str
) -> None:
    name = topic(partitions=PARTITIONS)
    client = transactional(node.bootstrap, transactional_id)
    client.begin_transaction()
    write(client, name, ["a", "b", "c"])
    assert read_all(node.bootstrap, name, "read_committed") == []
    assert read_all(node.bootstrap, name, "read_uncommitted") == ["a", "b", "c"]
    with reading(node.bootstrap, name, "read_committed") as waiting:
        client.commit_transaction(CALL_SECONDS)
        got: list[str] = []
        eventually(
            lambda: (
                got.extend(m.value().decode() for m in waiting.consume(10, 0.2) if not m.error())
                or len(got) == 3
            ),
            CALL_SECONDS,
        )
    assert sorted(got) == ["a", "b", "c"]


def test_a_second_producer_fences_the_first(
    node: BrokerProcess, topic: TopicMaker, transactional_id: str
) -> None:
    name = topic(partitions=PARTITIONS)
    zombie = transactional(node.bootstrap, transactional_id)
    zombie.begin_transaction()
    write(zombie, name, ["lost"])
    successor = transactional(node.bootstrap, transactional_id)
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(CALL_SECONDS)
    assert refused.value.args[0].fatal()
    successor.begin_transaction()
    write(successor, name, ["kept"])
    successor.commit_transaction(CALL_SECONDS)
    assert read_all(node.bootstrap, name, "read_committed") == ["kept"]


def test_offsets_are_committed_with_the_transaction(
    node: BrokerProcess, topic: TopicMaker, transactional_id: str
) -> None:
    source, sink = topic(partitions=1), topic(partitions=PARTITIONS)
    plain = Producer({"bootstrap.servers": node.bootstrap, **QUIET})
    for number in range(10):
        plain.produce(source, str(number), partition=0)
    assert plain.flush(CALL_SECONDS) == 0
    client = transactional(node.bootstrap, transactional_id)
    reader = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": transactional_id,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            **QUIET,
        }
    )
    try:
        reader.subscribe([source])
        got = take(reader, 10)
        place = [TopicPartition(source, 0)]
        for offset, commit in ((4, True), (9, False)):
            client.begin_transaction()
            write(client, sink, [m.value().decode() for m in got if m.offset() < offset])
            offsets = [TopicPartition(source, 0, offset)]
            group = reader.consumer_group_metadata()
            client.send_offsets_to_transaction(offsets, group, CALL_SECONDS)
            if commit:
                client.commit_transaction(CALL_SECONDS)
            else:
                client.abort_transaction(CALL_SECONDS)
        assert reader.committed(place, CALL_SECONDS)[0].offset == 4
    finally:
        reader.close()
    assert read_all(node.bootstrap, sink, "read_committed") == ["0", "1", "2", "3"]


# -- three nodes -----------------------------------------------------------------------------------


def coordinator(cluster: Cluster, transactional_id: str) -> int:
    """The node that coordinates a transactional id; waits until there is one."""
    request = FindCoordinatorRequest(coordinator_keys=[transactional_id], key_type=1)

    def known() -> int:
        [found] = cluster.ask(request, 4).coordinators
        return int(found.node_id) if found.error_code == 0 else 0

    return eventually(known, CALL_SECONDS)


def state_of(cluster: Cluster, transactional_id: str) -> str:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    node_id = coordinator(cluster, transactional_id)
    [found] = cluster.ask(request, 0, [node_id]).transaction_states
    return str(found.transaction_state)


# Kafka 4.3 leaves the transaction open in a partition that has no leader at that moment.
@pytest.mark.penstock_only
@pytest.mark.slow
@pytest.mark.parametrize("commit", [True, False])
def test_the_coordinator_dies_between_the_decision_and_the_markers(
    target: str, tmp_path: Path, transactional_id: str, commit: bool
) -> None:
    # One copy of each partition: a dead node's partitions have no leader, so no marker gets there.
    settings = {"transaction.state.log.num.partitions": "4", "min.insync.replicas": "1"}
    with Cluster(3, tmp_path, settings, kind=target) as cluster:
        cluster.make_topic("t", partitions=PARTITIONS, replicas=1)
        client = transactional(cluster.bootstrap, transactional_id)
        first = coordinator(cluster, transactional_id)
        index, away = next(
            (index, state.leader)
            for (_, index), state in cluster.partitions("t").items()
            if state.leader != first
        )
        client.begin_transaction()
        client.produce("t", "a", partition=index)
        assert client.flush(CALL_SECONDS) == 0
        cluster.kill(away)
        end = client.commit_transaction if commit else client.abort_transaction
        end(CALL_SECONDS)
        decided = "PrepareCommit" if commit else "PrepareAbort"
        eventually(lambda: state_of(cluster, transactional_id) == decided, CALL_SECONDS)

        cluster.kill(first)
        cluster.start_node(away)
        over = "CompleteCommit" if commit else "CompleteAbort"
        eventually(lambda: state_of(cluster, transactional_id) == over, CALL_SECONDS)
        cluster.start_node(first)
        cluster.wait_in_sync("t")
        # The last stable offset has moved: readers get to the end, and see what was committed.
        expected = ["a"] if commit else []
        assert read_all(cluster.bootstrap, "t", "read_committed") == expected
        client.begin_transaction()
        write(client, "t", ["b", "c", "d"])
        client.commit_transaction(CALL_SECONDS)
        assert read_all(cluster.bootstrap, "t", "read_committed") == [*expected, "b", "c", "d"]
