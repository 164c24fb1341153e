"""What cannot be asked is never left out in silence: the command says what is missing, and its exit
code is not 0.

A topic has one partition on each of three nodes. The tests of this file run in order: first node 3
is killed, and its partition has no leader; then node 2, and with it goes the quorum: nobody can say
any more that the leader of its partition is gone. Node 1 is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from support.cluster import Cluster
from support.node import NodeProcess
from support.process import free_port
from support.raw import RawClient
from support.waiting import CALL_SECONDS_MAX, eventually

from .conftest import run_with

pytestmark = pytest.mark.penstock_only
Run = Callable[..., Any]
SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "min.insync.replicas": "1",
    "broker.session.timeout.ms": "2000",
}
DEGRADED = 3
FIND_COORDINATOR_VERSION = 2
CREATE_TOPICS_VERSION = 5
GROUP = 0


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, str]]:
    """Topic t, with ten messages on each node, and a group that node 1 coordinates at their
    ends.
    """
    with Cluster(3, tmp_path_factory.mktemp("cluster"), SETTINGS) as made:
        new = NewTopic("t", 3, replica_assignment=[[1], [2], [3]])
        made.admin().create_topics([new])["t"].result(CALL_SECONDS_MAX)
        made.wait_in_sync("t")
        for partition in range(3):
            lines = "".join(f"{partition}-{i}\n" for i in range(10))
            told = ("topic", "produce", "t", "--partition", str(partition))
            assert _run(made, *told, stdin=lines).code == 0
        group = _group(made)
        moved = _run(made, "group", "seek", group, "--to", "latest", "--topic", "t")
        assert moved.code == 0, moved
        yield made, group


@pytest.fixture(scope="module")
def cluster(prepared: tuple[Cluster, str]) -> Cluster:
    return prepared[0]


@pytest.fixture(scope="module")
def group(prepared: tuple[Cluster, str]) -> str:
    return prepared[1]


def _run(cluster: Cluster, *args: str, **more: Any) -> Any:
    """Runs `penstock ARGS`; a command waits for two seconds, and asks node 1 first."""
    environment = {"PENSTOCK_BOOTSTRAP": cluster.nodes[1].bootstrap}
    return run_with(environment, *args, "--timeout", "2", **more)


def _group(cluster: Cluster) -> str:
    """A group whose coordinator is node 1."""

    def coordinator(name: str) -> int:
        request = FindCoordinatorRequest(key=name, key_type=GROUP)
        found = eventually(lambda: cluster.ask(request, FIND_COORDINATOR_VERSION, [1]))
        return int(found.node_id)

    eventually(lambda: coordinator("g-0") > 0)
    return next(name for name in (f"g-{i}" for i in range(100)) if coordinator(name) == 1)


@pytest.fixture(scope="module")
def without_3(cluster: Cluster) -> Cluster:
    """Partition 2 has no leader."""
    cluster.kill(3)
    eventually(lambda: cluster.partitions("t", node_ids=[1])["t", 2].leader < 0)
    return cluster


@pytest.fixture(scope="module")
def without_quorum(without_3: Cluster) -> Cluster:
    """The leader of partition 1, as far as anybody knows, cannot be reached."""
    without_3.kill(2)
    return without_3


@pytest.fixture
def run(without_quorum: Cluster) -> Run:
    return lambda *args, **more: _run(without_quorum, *args, **more)


def _unreachable(cluster: Cluster) -> str:
    return (
        f"broker 2, the leader of t-1, is advertised at {cluster.nodes[2].bootstrap}, which cannot"
        " be reached from here (connection refused)"
    )


def test_a_group_is_described_but_for_a_partition_without_a_leader(
    without_3: Cluster, group: str
) -> None:
    told = _run(without_3, "group", "describe", group, "--format", "json")
    assert (told.code, told.sentence) == (
        1,
        "the ends of some partitions are missing above: t-2 has no leader; see `penstock cluster"
        " status`",
    )
    [described] = told.json(code=1)
    ends = {p["partition"]: (p["committed"], p["end"], p["lag"]) for p in described["partitions"]}
    assert ends == {0: (10, 10, 0), 1: (10, 10, 0), 2: (10, None, None)}
    assert described["missing"] == [
        {"topic": "t", "partition": 2, "reason": "t-2 has no leader"},
    ]
    text = _run(without_3, "group", "describe", group)
    assert text.code == 1
    assert "at least 0 messages behind" in text.out


def test_a_topic_is_described_but_for_the_offsets_that_nobody_told(
    without_3: Cluster,
) -> None:
    told = _run(without_3, "topic", "describe", "t", "--format", "json")
    assert "t-2 has no leader" in told.sentence
    [described] = told.json(code=1)
    assert [(p["leader"], p["start_offset"], p["messages"]) for p in described["partitions"]] == [
        (1, 0, 10),
        (2, 0, 10),
        (None, None, None),
    ]


def test_consume_prints_nothing_when_a_leader_cannot_be_reached(
    run: Run, without_quorum: Cluster
) -> None:
    ended = run("topic", "consume", "t")
    assert (ended.code, ended.out) == (1, "")
    assert _unreachable(without_quorum) in ended.sentence
    assert "t-2 has no leader" in ended.sentence
    assert "advertised.listeners" in ended.sentence
    assert "--partition" in ended.sentence


def test_consume_reads_the_partition_that_is_there(run: Run) -> None:
    ended = run("topic", "consume", "t", "--partition", "0")
    assert (ended.code, len(ended.out.splitlines())) == (0, 10)


def test_describe_shows_what_is_missing(run: Run, without_quorum: Cluster) -> None:
    ended = run("topic", "describe", "t", "--format", "json")
    [described] = ended.json(code=1)
    assert [(p["start_offset"], p["end_offset"]) for p in described["partitions"]] == [
        (0, 10),
        (None, None),
        (None, None),
    ]
    assert [m["partition"] for m in described["missing"]] == [1, 2]
    assert _unreachable(without_quorum) in ended.sentence
    text = run("topic", "describe", "t")
    assert "3 partitions, at least 10 messages" in text.out
    assert "-1001" not in text.out


@pytest.mark.parametrize(
    "limit", [("--keep", "1"), ("--before-offset", "5"), ("--before", "-1h")], ids=lambda o: o[0]
)
def test_trim_drops_nothing(run: Run, without_quorum: Cluster, limit: tuple[str, str]) -> None:
    ended = run("topic", "trim", "t", *limit)
    assert (ended.code, ended.out) == (1, "")
    assert _unreachable(without_quorum) in ended.sentence
    kept = run("topic", "consume", "t", "--partition", "0", "--count", "1")
    assert kept.out == "0-0\n"


@pytest.mark.parametrize("to", ["earliest", "latest", "3", "-1h"])
def test_seek_moves_nothing(run: Run, without_quorum: Cluster, group: str, to: str) -> None:
    ended = run("group", "seek", group, "--to", to)
    assert (ended.code, ended.out) == (1, "")
    assert _unreachable(without_quorum) in ended.sentence
    [described] = run("group", "describe", group, "--format", "json").json(code=1)
    assert [p["committed"] for p in described["partitions"]] == [10, 10, 10]


def test_groups_of_a_broker_that_is_away_are_missed(run: Run, group: str) -> None:
    ended = run("group", "list", "--format", "json")
    assert group in [listed["group"] for listed in ended.json(code=1)]
    assert ended.sentence.startswith("some groups may be missing: broker 2 is advertised at")
    assert "has no leader" in ended.sentence
    unknown = run("group", "describe", "nobody")
    assert unknown.sentence.startswith("cannot tell whether group 'nobody' exists: some groups")


def test_produce_names_the_broker_that_cannot_be_reached(run: Run, without_quorum: Cluster) -> None:
    ended = run("topic", "produce", "t", "--partition", "1", "--format", "json", stdin="lost\n")
    facts = ended.json(code=1)
    assert (facts["published"], facts["failed"]) == (0, 1)
    assert ended.err == f"line 1: {_unreachable(without_quorum)}\n"


def test_bench_measures_nothing_that_is_not_there(run: Run) -> None:
    ended = run("bench", "produce", "--client", "confluent", "--seconds", "0.1")
    assert ended.code == 1, ended


def test_status_sees_that_leaders_and_quorum_are_gone(run: Run, without_quorum: Cluster) -> None:
    ended = run("cluster", "status", "--format", "json")
    facts = ended.json(code=DEGRADED)
    assert not facts["healthy"]
    assert facts["quorum"] is None
    assert facts["unreachable"] == [2]
    assert "t-1" in facts["leader_unreachable"]
    assert "t-2" in facts["leaderless"]
    text = run("cluster", "status")
    assert text.code == DEGRADED
    assert "degraded: the quorum has no leader" in text.out
    assert "whose leader cannot be reached" in text.out


def test_the_doctor_names_the_worst_first(run: Run, without_quorum: Cluster) -> None:
    facts = run("doctor", "--format", "json").json(code=DEGRADED)
    assert not facts["healthy"]
    problems = [finding["problem"] for finding in facts["findings"]]
    assert problems[0].startswith("the metadata quorum has no leader")
    assert problems[1].startswith(f"node 2 does not answer at {without_quorum.nodes[2].bootstrap}")
    assert "without a leader" in problems[2]
    assert "the controller does not hear from node 3" in problems


@pytest.fixture
def misadvertised(tmp_path: Path) -> Iterator[tuple[NodeProcess, str]]:
    """A node that tells its clients an address where nobody listens."""
    wrong = f"127.0.0.1:{free_port()}"
    with NodeProcess(tmp_path, {"advertised.listeners": f"PLAINTEXT://{wrong}"}) as node:
        yield node, wrong


def test_a_node_that_advertises_a_wrong_address(
    misadvertised: tuple[NodeProcess, str],
) -> None:
    node, wrong = misadvertised

    def run(*args: str, **more: Any) -> Any:
        environment = {"PENSTOCK_BOOTSTRAP": node.bootstrap}
        return run_with(environment, *args, "--timeout", "1", **more)

    told = run("cluster", "status", "--format", "json").json(code=DEGRADED)
    assert (told["healthy"], told["unreachable"]) == (False, [1])
    text = run("cluster", "status")
    assert text.code == DEGRADED
    assert "degraded: some nodes cannot be reached" in text.out
    assert f"node 1 is advertised at {wrong}, which cannot be reached from here" in text.err
    seen = run("doctor", "--format", "json").json(code=DEGRADED)
    assert wrong in seen["findings"][0]["problem"]
    features = run("cluster", "features")
    assert (features.code, wrong in features.sentence) == (1, True)
    made = run("topic", "create", "t")
    assert made.code == 1
    assert f"cannot create topic 't': broker 1 is advertised at {wrong}, which" in made.sentence
    with RawClient(node.host, node.port) as client:
        new = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        client.call(CreateTopicsRequest(topics=[new], timeout_ms=10_000), CREATE_TOPICS_VERSION)
    sent = run("topic", "produce", "t", stdin="a\nb\n")
    assert sent.code == 1
    assert f"line 1: broker 1, the leader of t-0, is advertised at {wrong}, which" in sent.err
    read = run("topic", "consume", "t")
    assert (read.code, read.out, wrong in read.sentence) == (1, "", True)
