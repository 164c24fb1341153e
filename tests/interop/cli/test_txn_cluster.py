"""`penstock txn` in a cluster, where each node coordinates some of the transactional ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from support.cluster import Cluster
from support.helpers import QUIET
from support.waiting import CALL_SECONDS_MAX, eventually

Run = Callable[..., Any]
SETTINGS = {"transaction.state.log.num.partitions": "6"}


@pytest.fixture
def cluster(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(3, tmp_path_factory.mktemp("cluster"), SETTINGS, kind=target) as cluster:
        yield cluster


@pytest.mark.timeout(300)
def test_transactions_of_all_coordinators_are_listed(
    cluster: Cluster, run_at: Run, topic_name: Callable[[], str]
) -> None:
    """Also when a node is away: what it coordinated, others do."""
    topic = topic_name()
    cluster.make_topic(topic, 3)
    names = [f"{topic}-{i}" for i in range(8)]
    producers = [open_transaction(cluster, name, topic) for name in names]

    def listed() -> dict[str, int]:
        args = ("txn", "list", "--state", "Ongoing", "--id-pattern", f"{topic}-.*")
        found = run_at(cluster.bootstrap, *args, "--format", "json").json()
        return {row["transactional_id"]: row["coordinator"] for row in found}

    before = listed()
    assert set(before) == set(names)
    assert len(set(before.values())) > 1, "ids are spread over coordinators"
    hanging = ("txn", "list", "--hanging", "--longer-than", "0ms", "--topic", topic)
    assert run_at(cluster.bootstrap, *hanging, "--format", "json").json() == []
    away = before[names[0]]
    cluster.stop(away)

    def without() -> bool:
        """Until it is known everywhere that the node is gone, and others have taken over."""
        after = listed()
        return set(after) == set(names) and away not in after.values()

    eventually(without)
    assert run_at(cluster.bootstrap, *hanging, "--format", "json").json() == []
    assert run_at(cluster.bootstrap, "txn", "abort", names[0], "--yes").code == 0
    assert set(listed()) == set(names[1:])
    for producer in producers[1:]:
        producer.abort_transaction(CALL_SECONDS_MAX)
    assert listed() == {}


def open_transaction(cluster: Cluster, name: str, topic: str) -> Producer:
    """A producer that has written to every partition and does not end its transaction."""
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": name, **QUIET}
    client = Producer(settings)
    client.init_transactions(CALL_SECONDS_MAX)
    client.begin_transaction()
    for partition in range(3):
        client.produce(topic, b"open", partition=partition)
    assert client.flush(CALL_SECONDS_MAX) == 0
    return client
