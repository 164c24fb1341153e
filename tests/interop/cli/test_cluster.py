"""Every `penstock cluster` command against a cluster of three, where nothing is lost for good."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from penstock.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from support.cluster import Cluster
from support.waiting import CALL_SECONDS_MAX, eventually

from .conftest import COMMAND_SECONDS_MAX, PENSTOCK
from .test_terminal import terminal

Run = Callable[..., Any]
UNFINISHED = 3
SAFE_DOWNGRADE = 2
THROTTLE_SETTINGS = re.compile(r"replication\.throttled")


@pytest.fixture(scope="module")
def shared_cluster(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"offsets.topic.replication.factor": "2"}  # so that two nodes can do without one
    with Cluster(3, tmp_path_factory.mktemp("cluster"), settings, kind=target) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    """Three nodes that all tests of this file share; who takes one down brings it back."""
    assert shared_cluster.running == [1, 2, 3], shared_cluster.log_tails()
    return shared_cluster


@pytest.fixture
def run(cluster: Cluster, run_at: Run) -> Run:
    """Runs `penstock cluster ARGS`."""
    return lambda *args, **more: run_at(cluster.bootstrap, "cluster", *args, **more)


@pytest.fixture
def placed(cluster: Cluster, topic_name: Callable[[], str]) -> Iterator[Callable[..., str]]:
    """Makes topics with their replicas at chosen nodes, and deletes them afterwards."""
    made = []

    def make(*replicas: list[int], messages: int = 0, least: int | None = None) -> str:
        name = topic_name()
        config = {} if least is None else {"min.insync.replicas": str(least)}
        new = NewTopic(name, len(replicas), replica_assignment=list(replicas), config=config)
        cluster.admin().create_topics([new])[name].result(CALL_SECONDS_MAX)
        made.append(name)
        cluster.wait_in_sync(name)
        if messages:
            _fill(cluster, name, messages)
        return name

    yield make
    if made:
        for future in cluster.admin().delete_topics(made).values():
            future.result(CALL_SECONDS_MAX)


def _fill(cluster: Cluster, name: str, messages: int) -> None:
    done = subprocess.run(
        # With keys, so that every partition gets some.
        [*PENSTOCK, "topic", "produce", name, "--input", "key-value", "-b", cluster.bootstrap],
        input=b"".join(
            b"%d:%d %s\n" % (i, i, os.urandom(500).hex().encode()) for i in range(messages)
        ),
        capture_output=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def replicas(cluster: Cluster, name: str) -> list[tuple[int, ...]]:
    return [p.replicas for _, p in sorted(cluster.partitions(name).items())]


def throttled(run_at: Run, cluster: Cluster, name: str) -> bool:
    text = run_at(cluster.bootstrap, "topic", "describe", name).out
    return THROTTLE_SETTINGS.search(text) is not None


# -- seeing ------------------------------------------------------------------------------------


def test_a_healthy_cluster(run: Run, cluster: Cluster, placed: Callable[..., str]) -> None:
    name = placed([1, 2], [2, 3], [3, 1])
    facts = run("status", "--format", "json").json()
    assert facts["healthy"] is True
    assert facts["problems"] == []
    assert facts["quorum"]["leader"] == cluster.quorum_leader()
    assert [v["id"] for v in facts["quorum"]["voters"]] == [1, 2, 3]
    assert facts["reassignments"] == []
    assert facts["features"]["metadata.version"] > 0
    nodes = {node["node"]: node for node in facts["nodes"]}
    assert {n["state"] for n in nodes.values()} == {"running"}
    assert sorted(n["quorum"] for n in nodes.values()) == ["leader", "voter", "voter"]
    assert all(n["replicas"] >= 2 and n["leaders"] >= 1 for n in nodes.values())
    assert nodes[2]["address"] == cluster.nodes[2].bootstrap
    text = run("status")
    assert text.code == 0
    assert f"cluster {facts['cluster_id']}: healthy" in text.out
    counts = "0 without a leader, 0 whose leader cannot be reached, 0 under min ISR, 0 under-replic"
    assert counts in text.out
    listed = run("nodes").out.splitlines()
    assert listed[0].split()[:4] == ["NODE", "ADDRESS", "RACK", "STATE"]
    assert len(listed) == 4
    assert run("nodes", "--format", "json").json()[0]["node"] == 1
    assert name not in text.out


def test_a_node_less(run: Run, cluster: Cluster, placed: Callable[..., str]) -> None:
    name = placed([1, 2, 3], [3, 1, 2])
    cluster.kill(3)
    try:
        degraded = eventually(lambda: (e := run("status")).code == UNFINISHED and e)
        assert "degraded: " in degraded.out
        assert re.search(rf"^{name}\s+0\s+under-replicated\s", degraded.out, re.MULTILINE)
        facts = run("status", "--format", "json").json(UNFINISHED)
        assert f"{name}-1" in facts["under_replicated"]
        assert {n["node"]: n["state"] for n in facts["nodes"]}[3] == "fenced"
    finally:
        cluster.start_node(3)
        cluster.wait_in_sync()
    eventually(lambda: run("status").code == 0)


def test_nobody_can_be_asked(run_at: Run) -> None:
    ended = run_at("127.0.0.1:1", "cluster", "status")
    assert ended.code == 1
    assert "cannot reach a broker" in ended.sentence


def test_features(run: Run) -> None:
    shown = {f["feature"]: f for f in run("features", "--format", "json").json()}
    for feature in shown.values():
        assert feature["supported_max"] >= feature["finalized"], "no highest below the one in force"
    level = shown["metadata.version"]
    assert level["supported_min"] <= level["finalized"] <= level["supported_max"]
    again = run("features", "--upgrade")
    assert again.code == 2
    assert "finalising features needs a yes" in again.sentence


@pytest.mark.penstock_only  # Kafka takes no level back that changed its records
def test_the_level_of_a_new_release_is_finalised_by_itself(run: Run, cluster: Cluster) -> None:
    name = "metadata.version"
    [before] = [f for f in run("features", "--format", "json").json() if f["feature"] == name]
    older = FeatureUpdateKey(
        feature=name, max_version_level=before["finalized"] - 1, upgrade_type=SAFE_DOWNGRADE
    )
    answer = cluster.ask(UpdateFeaturesRequest(feature_updates=[older]), 1)
    assert answer.error_code == 0, answer

    def level() -> int:
        shown = {f["feature"]: f["finalized"] for f in run("features", "--format", "json").json()}
        return int(shown[name])

    eventually(lambda: level() == before["finalized"] - 1)
    assert "penstock cluster features --upgrade" in run("features").err
    assert run("features", "--upgrade", "--yes").code == 0
    eventually(lambda: level() == before["finalized"])
    assert "every feature is at the highest level" in run("features", "--upgrade", "--yes").err


# -- leaders -----------------------------------------------------------------------------------


def test_leaders_go_back_to_the_preferred_replicas(
    run: Run, cluster: Cluster, placed: Callable[..., str]
) -> None:
    name = placed([1, 2], [1, 3])
    assert run("elect-leaders", "--topic", name).err == "no election is needed\n"
    cluster.restart(1)
    cluster.wait_in_sync(name)
    moved = [p for p in cluster.partitions(name).values() if p.leader != 1]
    held = run("elect-leaders", "--topic", name, "--format", "json").json()
    assert len(held) == len(moved) == 2
    assert all(election["elected"] for election in held)
    eventually(lambda: {p.leader for p in cluster.partitions(name).values()} == {1})


def test_an_unclean_election_wants_a_yes_and_a_need(
    run: Run, cluster: Cluster, placed: Callable[..., str]
) -> None:
    # Below two in sync nothing is committed, so that node 2 still has everything and leads.
    name, eligible = placed([3, 2], least=1), placed([3, 2], least=2)
    asked = run("elect-leaders", "--unclean", "--topic", name)
    assert asked.code == 2
    assert "an unclean election needs a yes" in asked.sentence
    assert run("elect-leaders", "--unclean", "--yes").err == "no election is needed\n"
    cluster.stop(2)
    cluster.kill(3)
    cluster.start_node(2)
    try:
        eventually(lambda: cluster.partitions(name)[name, 0].leader == -1)
        refused = run("elect-leaders", "--topic", name)
        assert refused.code == 1
        held = run("elect-leaders", "--unclean", "--topic", name, "--yes", "--format", "json")
        assert [election["elected"] for election in held.json()] == [True]
        eventually(lambda: cluster.partitions(name)[name, 0].leader == 2)
        if cluster.kind == "penstock":  # Kafka's are not formatted by its storage tool
            eventually(lambda: cluster.partitions(eligible)[eligible, 0].leader == 2)
    finally:
        cluster.start_node(3)
        cluster.wait_in_sync()


# -- moving ------------------------------------------------------------------------------------


def test_a_plan_is_shown_saved_carried_out_and_taken_back(
    run: Run, run_at: Run, cluster: Cluster, placed: Callable[..., str], tmp_path: Path
) -> None:
    name = placed([1], [1], [1], [1], [1], [1], messages=600)
    plan, was = tmp_path / "plan.json", tmp_path / "was.json"
    files = ("--save", str(plan), "--export", str(was))
    shown = run("reassign", "--topic", name, "--dry-run", *files)
    assert shown.code == 0
    assert "nothing was changed" in shown.err
    assert re.search(r"^4 moves, .* to copy; skew", shown.out, re.MULTILINE)
    assert replicas(cluster, name) == [(1,)] * 6
    assert {tuple(p["replicas"]) for p in json.loads(was.read_text())["partitions"]} == {(1,)}
    unasked = run("reassign", "--plan", str(plan))
    assert unasked.code == 2
    assert "a reassignment needs a yes" in unasked.sentence
    moved = run("reassign", "--plan", str(plan), "--throttle", "50M", "--yes", "--format", "json")
    facts = moved.json()
    assert moved.err == "moved 4 partitions\n"
    assert len(facts["moves"]) == 4
    assert facts["bytes"] > 0
    assert sorted(replicas(cluster, name)) == [(1,), (1,), (2,), (2,), (3,), (3,)]
    eventually(lambda: not throttled(run_at, cluster, name))
    assert run("reassign", "--plan", str(plan), "--verify").code == 0
    text = run_at(cluster.bootstrap, "topic", "consume", name).out
    assert {int(line.split()[0]) for line in text.splitlines()} == set(range(600))
    assert run("reassign", "--plan", str(was), "--verify").code == UNFINISHED
    assert run("reassign", "--plan", str(was), "--yes").code == 0
    assert replicas(cluster, name) == [(1,)] * 6


def test_more_and_fewer_replicas(run: Run, cluster: Cluster, placed: Callable[..., str]) -> None:
    name = placed([1], [2], [3], messages=100)
    for factor in (3, 1):
        wanted = ("--topic", name, "--replication-factor", str(factor))
        assert run("reassign", *wanted, "--yes").code == 0
        assert {len(ids) for ids in replicas(cluster, name)} == {factor}
        again = run("reassign", *wanted, "--yes")
        assert "nothing is to be moved" in again.err
    refused = run("reassign", "--topic", name, "--replication-factor", "4", "--yes")
    assert refused.code == 1
    assert "is to have 4 replica(s), and only 3 broker(s) can take one" in refused.sentence


def test_leaving_and_coming_back_to_a_reassignment(
    run: Run, run_at: Run, cluster: Cluster, placed: Callable[..., str]
) -> None:
    name = placed([1], [1], [1], messages=3000)
    command = [*PENSTOCK, "cluster", "reassign", "--topic", name, "--throttle", "1K", "--yes"]
    environment = {**os.environ, "PENSTOCK_BOOTSTRAP": cluster.bootstrap}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe) as begun:
        eventually(lambda: run("status", "--format", "json").json()["reassignments"])
        begun.send_signal(signal.SIGINT)
        _, said = begun.communicate(timeout=COMMAND_SECONDS_MAX)
    assert begun.returncode == 130
    assert b"the reassignment goes on" in said
    assert b"penstock cluster reassign --cancel" in said
    eventually(lambda: throttled(run_at, cluster, name))
    still = run("reassign", "--verify", "--format", "json")
    assert {m["topic"] for m in still.json(UNFINISHED)["moving"]} == {name}
    again = run("reassign", "--topic", name, "--yes")
    assert "is under way: wait until" in again.sentence
    stopped = run("reassign", "--cancel")
    assert re.fullmatch(r"cancelled the reassignment of (1 partition|2 partitions)\n", stopped.out)
    assert stopped.err == "took the throttle away\n"

    def undone() -> bool:
        now = replicas(cluster, name)
        assert now.count((1,)) >= 2, "what was not done is as it was"
        return {len(ids) for ids in now} == {1}

    eventually(undone)
    eventually(lambda: not throttled(run_at, cluster, name))
    assert run("reassign", "--verify").out == "no reassignment is under way\n"


def test_a_person_is_asked_and_sees_a_bar(
    run: Run, cluster: Cluster, placed: Callable[..., str]
) -> None:
    name = placed([1], [1], [1], messages=3000)
    arguments = ("cluster", "reassign", "--topic", name, "--throttle", "1K")
    with terminal(cluster, *arguments) as watched:
        eventually(lambda: "Move 2 partitions? [y/N]" in watched.read())
        assert replicas(cluster, name) == [(1,)] * 3
        watched.type("y\n")
        eventually(lambda: re.search(r"moving 2 partitions .*MiB", watched.read()))
        watched.process.send_signal(signal.SIGINT)
        code, shown = watched.end()
    assert code == 130, shown
    assert run("reassign", "--cancel", "--topic", name).code == 0
    with terminal(cluster, "cluster", "status", "--watch", "0.1") as watched:
        eventually(lambda: watched.read().count(": healthy") > 1)
        watched.process.send_signal(signal.SIGINT)
        assert watched.end()[0] == 0


def test_plans_that_cannot_be(run: Run, placed: Callable[..., str], tmp_path: Path) -> None:
    name = placed([1])
    plan = tmp_path / "plan.json"
    plan.write_text("{}")
    assert "is not a plan" in run("reassign", "--plan", str(plan), "--yes").sentence
    entry = {"topic": name, "partition": 0, "replicas": [9]}
    plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    refused = run("reassign", "--plan", str(plan), "--yes")
    assert f"the plan puts {name}-0 on node 9, which does not exist" in refused.sentence
    both = run("reassign", "--verify", "--cancel")
    assert (both.code, both.sentence) == (
        2,
        "--verify and --cancel exclude each other: keep one of them",
    )
    typo = run("reassign", "--topic", name + "x", "--yes")
    assert f"topic '{name}x' does not exist (did you mean {name}?)" in typo.sentence


def test_a_node_is_emptied_and_used_again(
    run: Run, cluster: Cluster, placed: Callable[..., str]
) -> None:
    name = placed([3, 1], [2, 3], messages=200)
    drained = run("drain", "3", "--yes")
    assert drained.code == 0
    assert "node 3 is empty: stop it, then forget it" in drained.err
    assert sorted(map(sorted, replicas(cluster, name))) == [[1, 2], [1, 2]]
    states = {n["node"]: n["state"] for n in run("nodes", "--format", "json").json()}
    assert states == {1: "running", 2: "running", 3: "cordoned"}
    running = run("remove", "3", "--yes")
    assert running.sentence == "node 3 is running: stop it first, then remove it"
    assert run("drain", "3", "--undo").code == 0
    states = {n["node"]: n["state"] for n in run("nodes", "--format", "json").json()}
    assert states[3] == "running"
    missing = run("drain", "9", "--yes")
    assert missing.sentence == "there is no node 9: the cluster's nodes are 1, 2, 3"


def test_voters_that_are_or_are_not(run: Run) -> None:
    assert "node 2 is a voter already" in run("add-voter", "2").sentence
    assert "there is no node 9" in run("add-voter", "9").sentence
    assert "node 9 is not a voter" in run("remove-voter", "9").sentence
