"""What can be done when nodes are lost for good, and when the quorum is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.cluster import Cluster
from support.waiting import eventually

pytestmark = pytest.mark.penstock_only
Run = Callable[..., Any]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(3, tmp_path) as made:
        yield made


@pytest.fixture
def run(cluster: Cluster, run_at: Run) -> Run:
    return lambda *args, **more: run_at(cluster.bootstrap, *args, **more)


def lose(cluster: Cluster, *nodes: int) -> None:
    """Processes and disks are gone, all at once."""
    cluster.kill(*nodes)
    for node in nodes:
        shutil.rmtree(cluster.nodes[node].data_dir)


def publish(run: Run, topic: str, *lines: str) -> None:
    text = "".join(line + "\n" for line in lines)
    assert run("topic", "produce", topic, "--acks", "all", stdin=text).code == 0


def voters(run: Run) -> list[int]:
    facts = run("cluster", "status", "--format", "json")
    assert facts.code != 1, facts
    quorum = json.loads(facts.out)["quorum"]
    return [] if quorum is None else sorted(voter["id"] for voter in quorum["voters"])


def test_one_voter_goes_on_alone_and_fresh_nodes_join_it(cluster: Cluster, run: Run) -> None:
    cluster.make_topic("t", partitions=3)
    publish(run, "t", "one", "two", "three")
    lose(cluster, 1, 2)
    folder = str(cluster.nodes[3].data_dir)
    refused = run("cluster", "recover-quorum", "--data-dir", folder, "--yes")
    assert refused.code == 1
    assert "is in use by another process: stop it" in refused.sentence
    cluster.kill(3)
    unasked = run("cluster", "recover-quorum", "--data-dir", folder)
    assert (unasked.code, "needs a yes" in unasked.sentence) == (2, True)
    done = run("cluster", "recover-quorum", "--data-dir", folder, "--yes")
    assert done.code == 0, done
    assert "without node 1 and node 2" in done.err
    assert "What can be lost" in done.err
    assert done.out == "node 3 is the only voter now: start it, then let others join\n"

    cluster.start_node(3)
    assert eventually(lambda: voters(run)) == [3]

    def led() -> bool:
        run("cluster", "elect-leaders", "--unclean", "--yes")
        return all(p.leader == 3 for p in cluster.partitions("t").values())

    eventually(led)
    again = run("topic", "create", "after", "-r", "1", "-c", "min.insync.replicas=1")
    assert again.code == 0, "the quorum decides again"
    publish(run, "after", "written")

    cluster.start_node(1, 2)
    eventually(lambda: voters(run) == [1, 2, 3])
    eventually(lambda: run("cluster", "status").code == 0)
    publish(run, "t", "four")
    kept = run("topic", "consume", "t").out.splitlines()
    assert sorted(kept) == ["four", "one", "three", "two"]
    cluster.kill(3)
    eventually(lambda: run("cluster", "status").code == 3)
    assert sorted(run("topic", "consume", "t").out.splitlines()) == sorted(kept)


def test_the_only_voter_and_a_wrong_folder_are_refused(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    cluster.kill(1, 2, 3)
    folder = str(cluster.nodes[1].data_dir)
    assert run("cluster", "recover-quorum", "--data-dir", folder, "--yes").code == 0
    twice = run("cluster", "recover-quorum", "--data-dir", folder, "--yes")
    assert twice.sentence == "node 1 is the only voter already: start it"
    wrong = run("cluster", "recover-quorum", "--data-dir", str(tmp_path), "--yes")
    assert "is not the data folder of a node" in wrong.sentence


def test_a_lost_node_is_drained_and_forgotten(cluster: Cluster, run: Run) -> None:
    cluster.make_topic("t", partitions=3)
    publish(run, "t", "one", "two")
    fourth = cluster.add_node()
    lose(cluster, 2)
    eventually(lambda: run("cluster", "status").code == 3)
    held = run("cluster", "remove", "2", "--yes")
    assert "node 2 still belongs to 3 partitions" in held.sentence
    drained = run("cluster", "drain", "2", "--yes")
    assert drained.code == 0, drained
    removed = run("cluster", "remove", "2", "--yes", "--format", "json").json()
    assert removed == {"node": 2, "removed": True, "was_voter": True}
    eventually(lambda: run("cluster", "status").code == 0)
    nodes = [node["node"] for node in run("cluster", "nodes", "--format", "json").json()]
    assert nodes == [1, 3, fourth]
    assert run("cluster", "add-voter", str(fourth)).out == f"node {fourth} is a voter now\n"
    assert voters(run) == [1, 3, fourth]
    removed = run("cluster", "remove-voter", str(fourth), "--format", "json").json()
    assert removed == {"voters": [1, 3]}
    assert sorted(run("topic", "consume", "t").out.splitlines()) == ["one", "two"]
