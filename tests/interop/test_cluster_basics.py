"""A cluster of real nodes: how it forms, who leads it, and what it goes on through."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from support.cluster import Cluster
from support.process import BrokerProcess
from support.reference import java_command
from support.waiting import eventually

pytestmark = [pytest.mark.penstock_only, pytest.mark.timeout(300)]

METADATA = "__cluster_metadata"
TOOL_SECONDS_MAX = 60
FAILOVER_SECONDS_MAX = 5.0  # below `broker.session.timeout.ms`
SNAPSHOTS_OFTEN = {"metadata.log.max.record.bytes.between.snapshots": "6000"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(3, tmp_path) as made:
        yield made


def quorum(cluster: Cluster) -> ResponsePartitionData:
    topic = RequestTopicData(
        topic_name=METADATA, partitions=[RequestPartitionData(partition_index=0)]
    )
    answer = cluster.ask(DescribeQuorumRequest(topics=[topic]), 2)
    assert answer.error_code == 0
    part: ResponsePartitionData = answer.topics[0].partitions[0]
    assert part.error_code == 0
    return part


def voters(cluster: Cluster) -> dict[int, bytes]:
    """Node and directory ids of the voters."""
    return {v.replica_id: v.replica_directory_id for v in quorum(cluster).current_voters}


def create(cluster: Cluster, node_id: int, *names: str) -> list[int]:
    """The error codes of CreateTopics by one node."""
    topics = [CreatableTopic(name=n, num_partitions=3, replication_factor=3) for n in names]
    with cluster.raw(node_id) as client:
        answer = client.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
    return [topic.error_code for topic in answer.topics]


def delete(cluster: Cluster, node_id: int, *names: str) -> list[int]:
    topics = [DeleteTopicState(name=name) for name in names]
    with cluster.raw(node_id) as client:
        answer = client.call(DeleteTopicsRequest(topics=topics, timeout_ms=10_000), 6)
    return [topic.error_code for topic in answer.responses]


def same_everywhere(cluster: Cluster) -> bool:
    first, *others = [cluster.partitions(node_ids=[node_id]) for node_id in cluster.running]
    return bool(first) and all(other == first for other in others)


def tool(main: str, *args: str) -> str:
    done = subprocess.run(
        java_command(main, *args),
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout


# -- forming ---------------------------------------------------------------------------------------


def test_three_nodes_become_one_cluster(cluster: Cluster) -> None:
    assert set(voters(cluster)) == {1, 2, 3}
    assert len(set(voters(cluster).values())) == 3
    leader = cluster.quorum_leader()
    ids = set()
    for node_id in cluster.running:
        answer = cluster.ask(DescribeClusterRequest(), 2, [node_id])
        ids.add(answer.cluster_id)
        assert answer.controller_id == leader
        assert {broker.broker_id for broker in answer.brokers} == {1, 2, 3}
    assert len(ids) == 1


def test_the_founder_waits_for_all_that_are_listed(tmp_path: Path) -> None:
    cluster = Cluster(3, tmp_path)
    try:
        founder = cluster.nodes[1]
        founder.launch()
        third = cluster.nodes[3]
        third.launch()
        eventually(lambda: f"{cluster.nodes[2].bootstrap} whether a cluster" in founder.log_tail())
        assert not founder.is_ready()
        assert not third.is_ready()
        cluster.nodes[2].launch()
        for node in cluster.nodes.values():
            node.wait_ready()
        assert set(voters(cluster)) == {1, 2, 3}
    finally:
        cluster.close()


@pytest.mark.parametrize("lost", [1, 3])
def test_a_node_that_lost_its_disk_joins_anew(cluster: Cluster, lost: int) -> None:
    cluster.make_topic("t")
    before = voters(cluster)
    cluster.kill(lost)
    shutil.rmtree(cluster.nodes[lost].data_dir)
    cluster.start_node(lost)
    after = voters(cluster)
    assert set(after) == {1, 2, 3}
    assert {id_ for id_ in before if after[id_] != before[id_]} == {lost}
    cluster.wait_in_sync("t")


def test_all_nodes_at_once_are_stopped_and_started(cluster: Cluster) -> None:
    cluster.make_topic("t", partitions=3)
    before = voters(cluster)
    cluster.stop_all()
    cluster.start()
    assert voters(cluster) == before
    cluster.wait_in_sync("t")
    cluster.kill(1, 2, 3)
    cluster.start()
    cluster.wait_in_sync("t")


# -- the controller --------------------------------------------------------------------------------


def test_any_node_takes_changes_to_the_cluster(cluster: Cluster) -> None:
    leader = cluster.quorum_leader()
    for node_id in cluster.running:
        assert create(cluster, node_id, f"by-{node_id}") == [0]
        assert create(cluster, node_id, f"by-{node_id}") == [36], "it exists already"
    eventually(lambda: same_everywhere(cluster))
    assert len(cluster.partitions()) == 9
    other = next(n for n in cluster.running if n != leader)
    assert delete(cluster, other, "by-1", "by-2") == [0, 0]
    eventually(lambda: {name for name, _ in cluster.partitions()} == {"by-3"})


def test_another_controller_goes_on_when_one_is_killed(cluster: Cluster) -> None:
    cluster.make_topic("t", partitions=6)
    for round_number in range(3):
        killed = cluster.quorum_leader()
        rest = [n for n in (1, 2, 3) if n != killed]
        cluster.kill(killed)
        assert create(cluster, rest[0], f"round-{round_number}") in ([0], [38])
        leader = cluster.quorum_leader(rest)
        assert leader in rest

        def moved(killed: int = killed, rest: list[int] = rest) -> bool:
            states = cluster.partitions("t", node_ids=rest[:1]).values()
            return all(s.leader in rest and killed not in s.isr for s in states)

        eventually(moved, FAILOVER_SECONDS_MAX)
        cluster.start_node(killed)
        cluster.wait_complete()
        cluster.wait_in_sync("t")
        eventually(lambda: same_everywhere(cluster))


def test_a_controller_that_stops_hands_over(cluster: Cluster) -> None:
    cluster.make_topic("t", partitions=6)
    stopped = cluster.quorum_leader()
    rest = [n for n in (1, 2, 3) if n != stopped]
    cluster.stop(stopped)
    states = cluster.partitions("t", node_ids=rest[:1]).values()
    assert all(s.leader in rest and stopped not in s.isr for s in states)
    assert cluster.quorum_leader(rest) in rest
    assert quorum(cluster).leader_epoch == 2, "one election, and no more"


def test_without_a_majority_nothing_changes_and_with_it_all_goes_on(cluster: Cluster) -> None:
    leader = cluster.quorum_leader()
    rest = [n for n in (1, 2, 3) if n != leader]
    cluster.kill(*rest)
    topics = [CreatableTopic(name="late", num_partitions=1, replication_factor=1)]
    with cluster.raw(leader) as client:
        answer = client.call(CreateTopicsRequest(topics=topics, timeout_ms=1_000), 7)
    assert answer.topics[0].error_code != 0
    cluster.start_node(*rest)
    cluster.wait_complete()
    assert create(cluster, leader, "t") == [0]


# -- growth ----------------------------------------------------------------------------------------


@pytest.mark.java
def test_a_fourth_node_observes_then_votes_by_apaches_tool(cluster: Cluster) -> None:
    added = cluster.add_node()
    eventually(lambda: added in {o.replica_id for o in quorum(cluster).observers})
    assert set(voters(cluster)) == {1, 2, 3}
    node = cluster.nodes[added]
    config = node.root / "controller.properties"
    config.write_text(
        f"node.id={added}\nprocess.roles=broker,controller\nlog.dirs={node.data_dir}\ncontroller.listener.names=PLAINTEXT\n"
        f"listeners=PLAINTEXT://{node.bootstrap}\n"
        f"advertised.listeners=PLAINTEXT://{node.bootstrap}\n"
    )
    main = "org.apache.kafka.tools.MetadataQuorumCommand"
    where = ["--bootstrap-server", cluster.bootstrap]
    said = tool(main, *where, "--command-config", str(config), "add-controller")
    assert f"Added controller {added}" in said
    assert set(voters(cluster)) == {1, 2, 3, 4}
    meta = dict(
        line.split("=", 1)
        for line in (node.data_dir / "meta.properties").read_text().splitlines()
        if "=" in line
    )
    gone = ["--controller-id", str(added), "--controller-directory-id", meta["directory.id"]]
    said = tool(main, *where, "remove-controller", *gone)
    assert "Removed" in said
    eventually(lambda: set(voters(cluster)) == {1, 2, 3})
    status = tool(main, *where, "describe", "--status")
    assert "LeaderId" in status
    assert '"endpoints"' in status


def test_a_node_that_is_told_to_becomes_a_voter_by_itself(cluster: Cluster) -> None:
    added = cluster.add_node({"controller.quorum.auto.join.enable": "true"})
    eventually(lambda: set(voters(cluster)) == {1, 2, 3, added})


# -- snapshots -------------------------------------------------------------------------------------


def checkpoints(node: BrokerProcess) -> list[Path]:
    return sorted((node.data_dir / f"{METADATA}-0").glob("*.checkpoint"))


@pytest.mark.java
def test_a_node_that_fell_behind_takes_a_snapshot(tmp_path: Path) -> None:
    with Cluster(3, tmp_path, SNAPSHOTS_OFTEN) as cluster:
        create(cluster, 1, "keep", "gone")
        cluster.wait_in_sync("keep", "gone")
        away = next(n for n in (1, 2, 3) if n != cluster.quorum_leader())
        other = next(n for n in (1, 2, 3) if n != away)
        cluster.kill(away)
        assert delete(cluster, other, "gone") == [0]
        for i in range(40):
            assert create(cluster, other, f"t{i}") in ([0], [38])
        node = cluster.nodes[cluster.quorum_leader([other])]
        log_dir = node.data_dir / f"{METADATA}-0"
        eventually(lambda: len(checkpoints(node)) == 2)
        eventually(lambda: not (log_dir / "00000000000000000000.log").exists())
        cluster.start_node(away)
        assert "the metadata was taken from a snapshot" in cluster.nodes[away].log_tail()
        cluster.wait_complete()
        eventually(lambda: same_everywhere(cluster))
        assert not list(cluster.nodes[away].data_dir.glob("gone-?"))
        cluster.restart(away)
        cluster.wait_complete()
        eventually(lambda: same_everywhere(cluster))
        cluster.kill(1, 2, 3)  # a running node may write the next snapshot and remove the file
        largest = max(log_dir.glob("*.log"), key=lambda path: path.stat().st_size)
        read_by_apache(checkpoints(node)[-1], largest)


def read_by_apache(checkpoint: Path, log: Path) -> None:
    options = ["--cluster-metadata-decoder"]
    main = "org.apache.kafka.tools.DumpLogSegments"
    said = tool(main, *options, "--files", str(checkpoint))
    for word in ("SnapshotHeader", "KRaftVersion", "KRaftVoters", "SnapshotFooter"):
        assert word in said
    assert '"type":"PARTITION_RECORD"' in said
    assert '"type":"REGISTER_BROKER_RECORD"' in said
    said = tool(main, *options, "--files", str(log))
    assert "isvalid: true" in said
    assert "isvalid: false" not in said
