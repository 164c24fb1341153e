"""The sink's tasks and commits on a cluster whose nodes are killed under them, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.spark.writer import Handed, Task, Work, commit_all
from support.cluster import Cluster
from support.spark_sink import chunk, options_for, run_task, values

PARTITIONS = 3
CHUNKS, ROWS = 6, 50


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(3, tmp_path_factory.mktemp("sink-cluster"), {}) as found:
        yield found


def rows(number: int) -> list[bytes]:
    return [b"%d" % i for i in range(number * ROWS, (number + 1) * ROWS)]


def everything() -> dict[bytes, int]:
    return {row: 1 for number in range(CHUNKS) for row in rows(number)}


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_leader_is_killed_while_a_task_writes(
    cluster: Cluster, topic_name: Callable[[], str], delivery: str
) -> None:
    name = topic_name()
    cluster.make_topic(name, PARTITIONS)
    options = options_for(cluster, topic=name, delivery=delivery)
    killed: list[int] = []

    def chunks() -> Iterator[Any]:
        for number in range(CHUNKS):
            if number == 2:
                killed.append(cluster.leader(name, 0))
                cluster.kill(*killed)
            yield chunk(rows(number), key=rows(number))

    try:
        handed = Task(options, Work(name, 0, 0)).run(chunks())
        commit_all(options, [handed])
        assert values(cluster, name) == everything()
    finally:
        cluster.start_node(*killed)
        cluster.wait_complete()


@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_a_node_is_killed_between_a_task_and_its_commit(
    cluster: Cluster, topic_name: Callable[[], str], node_id: int
) -> None:
    name = topic_name()
    cluster.make_topic(name, PARTITIONS)
    options = options_for(cluster, topic=name)
    tasks: list[Handed] = [
        run_task(options, Work(name, 0, task), chunk(rows(task), key=rows(task)))
        for task in range(CHUNKS)
    ]
    cluster.kill(node_id)
    try:
        commit_all(options, tasks)
        commit_all(options, tasks)
        again = run_task(options, Work(name, 0, 0), chunk(rows(0), key=rows(0)))
        assert again.prepared is None, "a replay finds the marker"
        assert values(cluster, name) == everything()
    finally:
        cluster.start_node(node_id)
        cluster.wait_complete()
