"""Apache's own command-line tools against a cluster of three nodes: what they say and what they do.

All tools run in one JVM, against one cluster that the tests of this file share.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from support.cluster import Cluster
from support.helpers import QUIET, produce_all
from support.tools import Done, Tools
from support.waiting import eventually

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

MESSAGES = 60
THROTTLE = "50000000"
SETTLE_SECONDS_MAX = 60.0


class Console:
    """The tools, pointed at the cluster."""

    def __init__(self, tools: Tools, cluster: Cluster) -> None:
        self._tools = tools
        self._bootstrap = ["--bootstrap-server", cluster.bootstrap]

    def __call__(self, tool: str, *args: str) -> str:
        """What a tool says that has to succeed."""
        return self._tools.output(tool, *self._placed(tool, args))

    def try_(self, tool: str, *args: str) -> Done:
        return self._tools.run(tool, *self._placed(tool, args))

    def alone(self, tool: str, *args: str) -> str:
        return self._tools.output_alone(tool, *self._placed(tool, args))

    def _placed(self, tool: str, args: tuple[str, ...]) -> list[str]:
        # `kafka-cluster` wants its verb first.
        first = 1 if tool == "cluster" else 0
        return [*args[:first], *self._bootstrap, *args[first:]]


@pytest.fixture(scope="module")
def shared_cluster(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(3, tmp_path_factory.mktemp("cluster"), kind=target) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    assert len(shared_cluster.running) == 3, "a node has died"
    return shared_cluster


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    made = Tools()
    yield made
    made.close()


@pytest.fixture
def console(tools: Tools, cluster: Cluster) -> Console:
    return Console(tools, cluster)


@pytest.fixture
def name(topic_name: Callable[[], str]) -> str:
    return topic_name()


def rows(text: str) -> list[dict[str, str]]:
    """The lines `Topic: t  Partition: 0  Leader: 1 ...` of a description."""
    return [
        dict(re.findall(r"(\w+): *([\w,]*)", line))
        for line in text.splitlines()
        if "Partition: " in line
    ]


def columns(text: str) -> list[dict[str, str]]:
    """A table with a line of headings, none of whose values has a blank in it."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    return [dict(zip(lines[0], line, strict=False)) for line in lines[1:]]


def publish(cluster: Cluster, topic: str, count: int = MESSAGES, partition: int = 0) -> None:
    client = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", **QUIET})
    messages = [{"value": f"{i}", "partition": partition} for i in range(count)]
    produce_all(client, topic, messages)


def nodes(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


# Topics and their settings


def test_topics(console: Console, cluster: Cluster, name: str) -> None:
    made = console("topics", "--create", "--topic", name, "--partitions", "4")
    assert f"Created topic {name}." in made
    cluster.wait_in_sync(name)
    assert name in console("topics", "--list").split()

    text = console("topics", "--describe", "--topic", name)
    assert "PartitionCount: 4" in text
    assert "ReplicationFactor: 3" in text
    described = rows(text)
    assert [row["Partition"] for row in described] == ["0", "1", "2", "3"]
    for row in described:
        assert sorted(nodes(row["Replicas"])) == sorted(nodes(row["Isr"])) == [1, 2, 3]
        assert int(row["Leader"]) == nodes(row["Replicas"])[0]
    assert {row["Leader"] for row in described} == {"1", "2", "3"}

    console("topics", "--alter", "--topic", name, "--partitions", "6")
    cluster.wait_in_sync(name)
    assert len(rows(console("topics", "--describe", "--topic", name))) == 6

    for which in ("--under-replicated-partitions", "--unavailable-partitions"):
        assert rows(console("topics", "--describe", "--topic", name, which)) == []

    console("topics", "--delete", "--topic", name)
    eventually(lambda: name not in console("topics", "--list").split())


def test_topics_with_replicas_by_hand(console: Console, cluster: Cluster, name: str) -> None:
    console("topics", "--create", "--topic", name, "--replica-assignment", "3:1,2:3")
    cluster.wait_in_sync(name)
    described = rows(console("topics", "--describe", "--topic", name))
    assert [row["Replicas"] for row in described] == ["3,1", "2,3"]
    assert [row["Leader"] for row in described] == ["3", "2"]


def test_topics_that_cannot_be(console: Console, name: str) -> None:
    done = console.try_("topics", "--create", "--topic", name, "--replication-factor", "4")
    assert done.code == 1
    assert "InvalidReplicationFactorException" in done.out + done.err
    done = console.try_("topics", "--create", "--topic", name, "--replica-assignment", "1:9")
    assert done.code == 1
    assert "InvalidReplicaAssignmentException" in done.out + done.err


def test_under_replicated(console: Console, cluster: Cluster, name: str) -> None:
    cluster.make_topic(name, 3)
    cluster.kill(3)
    try:

        def shown() -> bool:
            text = console("topics", "--describe", "--topic", name, "--under-replicated-partitions")
            return [row["Partition"] for row in rows(text)] == ["0", "1", "2"]

        eventually(shown, SETTLE_SECONDS_MAX)

        def leaders() -> set[str]:
            return {row["Leader"] for row in rows(console("topics", "--describe", "--topic", name))}

        eventually(lambda: "3" not in leaders())
    finally:
        cluster.start_node(3)
    cluster.wait_complete()
    cluster.wait_in_sync(seconds=SETTLE_SECONDS_MAX)


def test_configs_of_topics(console: Console, cluster: Cluster, name: str) -> None:
    cluster.make_topic(name)
    topic = ["--entity-type", "topics", "--entity-name", name]
    change = "retention.ms=123456,cleanup.policy=compact"
    assert "Completed updating" in console("configs", "--alter", *topic, "--add-config", change)

    def described() -> str:
        return console("configs", "--describe", *topic)

    eventually(lambda: "retention.ms=123456" in described())
    eventually(lambda: "cleanup.policy=compact" in described())
    console("configs", "--alter", *topic, "--delete-config", "retention.ms")
    eventually(lambda: "retention.ms=123456" not in described())
    done = console.try_("configs", "--alter", *topic, "--add-config", "retention.ms=soon")
    assert done.code != 0
    assert "retention.ms" in done.err


def test_configs_of_brokers(console: Console) -> None:
    one = ["--entity-type", "brokers", "--entity-name", "2"]
    every = ["--entity-type", "brokers", "--entity-default"]
    size = "message.max.bytes"
    console("configs", "--alter", *every, "--add-config", f"{size}=2100000")
    console("configs", "--alter", *one, "--add-config", f"{size}=2000000")
    eventually(lambda: f"{size}=2100000" in console("configs", "--describe", *every))

    def of_one() -> str:
        return console("configs", "--describe", *one)

    eventually(lambda: f"DYNAMIC_BROKER_CONFIG:{size}=2000000" in of_one())
    eventually(lambda: f"DYNAMIC_DEFAULT_BROKER_CONFIG:{size}=2100000" in of_one())
    other = ["--entity-type", "brokers", "--entity-name", "1"]
    assert f"{size}=2000000" not in console("configs", "--describe", *other)
    for which in (one, every):
        console("configs", "--alter", *which, "--delete-config", size)


# Groups


def test_consumer_groups(console: Console, cluster: Cluster, name: str) -> None:
    cluster.make_topic(name, 2)
    publish(cluster, name)
    group = f"g-{name}"
    console(
        "verifiable-consumer", "--topic", name, "--group-id", group,
        "--max-messages", str(MESSAGES), "--reset-policy", "earliest",
    )  # fmt: skip
    assert group in console("consumer-groups", "--list").split()

    def partition_0() -> dict[str, str]:
        text = console("consumer-groups", "--describe", "--group", group)
        return next(row for row in columns(text) if row["PARTITION"] == "0")

    assert partition_0()["CURRENT-OFFSET"] == str(MESSAGES)
    assert partition_0()["LOG-END-OFFSET"] == str(MESSAGES)
    assert partition_0()["LAG"] == "0"
    [state] = columns(console("consumer-groups", "--describe", "--group", group, "--state"))
    assert state["GROUP"] == group
    assert "Empty" in state.values()

    reset = ["--reset-offsets", "--group", group, "--topic", name, "--to-offset", "7"]
    console("consumer-groups", *reset, "--execute")
    assert partition_0()["CURRENT-OFFSET"] == "7"
    assert partition_0()["LAG"] == str(MESSAGES - 7)
    deleted = console("consumer-groups", "--delete", "--group", group)
    assert "successful" in deleted
    assert group not in console("consumer-groups", "--list").split()


# Moves


def replicas(cluster: Cluster, name: str) -> dict[int, tuple[int, ...]]:
    return {p: state.replicas for (_, p), state in cluster.partitions(name).items()}


def as_plan(name: str, wanted: dict[int, list[int]]) -> str:
    partitions = [{"topic": name, "partition": p, "replicas": r} for p, r in wanted.items()]
    return json.dumps({"version": 1, "partitions": partitions})


def test_reassign(console: Console, cluster: Cluster, name: str, tmp_path: Path) -> None:
    """Generate, execute with a throttle, verify: the replicas have moved, the throttle is gone."""
    console("topics", "--create", "--topic", name, "--replica-assignment", "1:2,2:1,1:2")
    cluster.wait_in_sync(name)
    publish(cluster, name, 500)
    moved, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    moved.write_text(json.dumps({"topics": [{"topic": name}], "version": 1}))
    text = console(
        "reassign-partitions", "--generate", "--topics-to-move-json-file", str(moved),
        "--broker-list", "2,3",
    )  # fmt: skip
    current, proposed = (json.loads(line) for line in text.splitlines() if line.startswith("{"))
    assert {p["partition"]: p["replicas"] for p in current["partitions"]} == {
        0: [1, 2], 1: [2, 1], 2: [1, 2],
    }  # fmt: skip
    wanted = {p["partition"]: p["replicas"] for p in proposed["partitions"]}
    assert all(sorted(nodes) == [2, 3] for nodes in wanted.values())

    plan.write_text(as_plan(name, wanted))
    by_plan = ["--reassignment-json-file", str(plan)]
    text = console("reassign-partitions", "--execute", *by_plan, "--throttle", THROTTLE)
    assert f"throttle limit was set to {THROTTLE} B/s" in text
    assert "Successfully started partition reassignments" in text

    def verified() -> str:
        text = console("reassign-partitions", "--verify", *by_plan)
        return text if text.count("is completed") == 3 else ""

    text = eventually(verified, SETTLE_SECONDS_MAX)
    assert "Clearing broker-level throttles on brokers 1,2,3" in text
    assert f"Clearing topic-level throttles on topic {name}" in text
    moved_to = {p: tuple(nodes) for p, nodes in wanted.items()}
    eventually(lambda: replicas(cluster, name) == moved_to)
    cluster.wait_in_sync(name)
    for entity in (("topics", name), ("brokers", "2")):
        where = ["--entity-type", entity[0], "--entity-name", entity[1]]
        eventually(lambda where=where: "throttled" not in console("configs", "--describe", *where))
    assert "No partition reassignments found." in console("reassign-partitions", "--list")
    text = console("get-offsets", "--topic", name, "--time", "-1")
    assert f"{name}:0:500" in text.split()


def test_reassign_changes_the_factor(
    console: Console, cluster: Cluster, name: str, tmp_path: Path
) -> None:
    console("topics", "--create", "--topic", name, "--replica-assignment", "1")
    cluster.wait_in_sync(name)
    publish(cluster, name)
    plan = tmp_path / "plan.json"
    for wanted in ([1, 2, 3], [3, 2], [2]):
        plan.write_text(as_plan(name, {0: wanted}))
        by_plan = ["--reassignment-json-file", str(plan)]
        console("reassign-partitions", "--execute", *by_plan)
        eventually(
            lambda by_plan=by_plan: (
                "is completed" in console("reassign-partitions", "--verify", *by_plan)
            ),
            SETTLE_SECONDS_MAX,
        )
        eventually(lambda wanted=wanted: replicas(cluster, name) == {0: tuple(wanted)})
        eventually(lambda wanted=wanted: cluster.leader(name) in wanted)


def test_reassign_refuses_and_cancels(
    console: Console, cluster: Cluster, name: str, tmp_path: Path
) -> None:
    cluster.make_topic(name)
    plan = tmp_path / "plan.json"
    plan.write_text(as_plan(name, {0: [1, 9]}))
    done = console.try_("reassign-partitions", "--execute", "--reassignment-json-file", str(plan))
    assert done.code != 0
    assert "9" in done.out + done.err
    plan.write_text(as_plan(name, {0: [1, 2, 3]}))
    text = console("reassign-partitions", "--cancel", "--reassignment-json-file", str(plan))
    assert "None of the specified partition reassignments are active." in text


def test_leader_election(console: Console, cluster: Cluster, name: str) -> None:
    console("topics", "--create", "--topic", name, "--replica-assignment", "1:2:3,2:3:1")
    cluster.wait_in_sync(name)
    cluster.restart(1)
    cluster.wait_complete()
    cluster.wait_in_sync(seconds=SETTLE_SECONDS_MAX)
    assert cluster.leader(name, 0) != 1
    one = ["--election-type", "PREFERRED", "--topic", name, "--partition", "0"]
    text = console("leader-election", *one)
    assert f"Successfully completed leader election (PREFERRED) for partitions {name}-0" in text
    eventually(lambda: cluster.leader(name, 0) == 1)
    assert "Valid replica already elected" in console("leader-election", *one)
    console("leader-election", "--election-type", "PREFERRED", "--all-topic-partitions")
    eventually(
        lambda: all(s.leader == s.replicas[0] for s in cluster.partitions().values()),
        SETTLE_SECONDS_MAX,
    )


# The cluster itself


def test_metadata_quorum(console: Console, cluster: Cluster) -> None:
    text = console("metadata-quorum", "describe", "--status")
    status = dict(re.findall(r"^(\w+): +(.*)$", text, re.MULTILINE))
    assert int(status["LeaderId"]) == cluster.quorum_leader()
    assert int(status["LeaderEpoch"]) > 0
    assert int(status["HighWatermark"]) > 0
    assert {voter["id"] for voter in json.loads(status["CurrentVoters"])} == {1, 2, 3}
    assert status["CurrentObservers"] == "[]"

    def replicated() -> list[dict[str, str]]:
        found = columns(console("metadata-quorum", "describe", "--replication"))
        return found if all(int(row["Lag"]) <= 1 for row in found) else []

    found = eventually(replicated)
    assert sorted(row["NodeId"] for row in found) == ["1", "2", "3"]
    assert sorted(row["Status"] for row in found) == ["Follower", "Follower", "Leader"]


def test_log_dirs(console: Console, cluster: Cluster, name: str) -> None:
    cluster.make_topic(name)
    publish(cluster, name)

    def sizes() -> dict[int, int]:
        text = console("log-dirs", "--describe", "--broker-list", "1,2,3", "--topic-list", name)
        answer = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
        return {
            broker["broker"]: partition["size"]
            for broker in answer["brokers"]
            for log_dir in broker["logDirs"]
            for partition in log_dir["partitions"]
            if partition["partition"] == f"{name}-0" and partition["offsetLag"] == 0
        }

    def equal() -> bool:
        found = sizes()
        return set(found) == {1, 2, 3} and len(set(found.values())) == 1 and found[1] > MESSAGES

    eventually(equal)


def test_get_offsets(console: Console, cluster: Cluster, name: str) -> None:
    cluster.make_topic(name, 3)
    for partition, count in ((0, 5), (2, 9)):
        publish(cluster, name, count, partition)
    text = console("get-offsets", "--topic", name, "--time", "-1")
    assert text.split() == [f"{name}:0:5", f"{name}:1:0", f"{name}:2:9"]
    text = console("get-offsets", "--topic-partitions", f"{name}:2", "--time", "earliest")
    assert text.split() == [f"{name}:2:0"]


def test_features(console: Console) -> None:
    text = console("features", "describe")
    found = {m[1]: m for m in re.finditer(
        r"Feature: (\S+)\s+SupportedMinVersion: (\S+)\s+SupportedMaxVersion: (\S+)\s+"
        r"FinalizedVersionLevel: (\S+)\s+Epoch: (\d+)", text)}  # fmt: skip
    assert found["metadata.version"][4].startswith("4.")
    assert int(found["kraft.version"][3]) == 1
    assert len({each[5] for each in found.values()}) == 1, "one epoch for all"


def test_cluster_id_and_endpoints(console: Console, cluster: Cluster) -> None:
    found = re.search(r"Cluster ID: (\S+)", console("cluster", "cluster-id"))
    assert found is not None
    assert len(found[1]) == 22
    listed = columns(console("cluster", "list-endpoints"))
    assert {(row["ID"], int(row["PORT"])) for row in listed} == {
        (str(node.node_id), node.port) for node in cluster.nodes.values()
    }


def test_verifiable_producer_and_consumer(console: Console, cluster: Cluster, name: str) -> None:
    cluster.make_topic(name, 3)
    text = console.alone(
        "verifiable-producer", "--topic", name, "--max-messages", str(MESSAGES), "--acks", "-1"
    )
    said: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    [summary] = [line for line in said if line["name"] == "tool_data"]
    assert summary["sent"] == summary["acked"] == MESSAGES
    written = [(line["partition"], line["offset"]) for line in said
               if line["name"] == "producer_send_success"]  # fmt: skip
    assert len(set(written)) == MESSAGES
    for protocol in ("classic", "consumer"):
        text = console(
            "verifiable-consumer", "--topic", name, "--group-id", f"{protocol}-{name}",
            "--max-messages", str(MESSAGES), "--reset-policy", "earliest",
            "--group-protocol", protocol,
        )  # fmt: skip
        said = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        read = sum(line["count"] for line in said if line["name"] == "records_consumed")
        assert read == MESSAGES
        commits = [line for line in said if line["name"] == "offsets_committed"]
        assert commits
        assert all(line["success"] for line in commits)
