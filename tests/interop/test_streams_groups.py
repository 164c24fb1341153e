"""Kafka Streams with `group.protocol=streams` on a cluster: the broker assigns its tasks, words are
counted once over kills of its processes and of a node, and Apache's tool shows and moves the group.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from support.cluster import Cluster
from support.tools import Done, Tools
from support.transactions import SETTINGS, newest_features
from support.waiting import CALL_SECONDS_MAX, eventually
from support.word_count import APPLICATION, PARTITIONS, SINK, SOURCE, STREAMS, WordCount, Words

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

STREAMS_SETTINGS = SETTINGS | {
    "group.streams.min.session.timeout.ms": "500",
    "group.streams.session.timeout.ms": "3000",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": "300",
    "group.streams.initial.rebalance.delay.ms": "500",
    "group.streams.num.standby.replicas": "1",
}
CHANGELOG = f"{APPLICATION}-counts-changelog"
REPARTITION = f"{APPLICATION}-counts-repartition"
KILLED_AT, NODE_KILLED_AT, LAST = 100, 250, 400


@pytest.fixture
def cluster(target: str, tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(3, tmp_path / "cluster", STREAMS_SETTINGS, kind=target) as made:
        newest_features(made.nodes[1])
        Words.make_topics(made)
        yield made


@pytest.fixture
def applications(cluster: Cluster, tmp_path: Path) -> Iterator[list[WordCount]]:
    made = [WordCount(cluster, tmp_path, name, STREAMS) for name in ("one", "two")]
    yield made
    for application in made:
        application.kill()


class Console:
    """`kafka-streams-groups` on a cluster."""

    def __init__(self, tools: Tools, cluster: Cluster) -> None:
        self._tools = tools
        self._cluster = cluster

    def try_(self, *args: str) -> Done:
        bootstrap = self._cluster.bootstrap
        return self._tools.run("streams-groups", "--bootstrap-server", bootstrap, *args)

    def rows(self, *args: str) -> list[list[str]]:
        """The lines of the table that a command prints, without their heads."""
        done = self.try_(*args)
        assert done.code == 0, done
        return [line.split() for line in done.out.splitlines() if line.strip()][1:]


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    made = Tools()
    yield made
    made.close()


def coordinator(cluster: Cluster) -> int:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[APPLICATION])
    answer: FindCoordinatorResponse = cluster.ask(request, 4)
    (found,) = answer.coordinators
    assert found.error_code == 0, found
    return found.node_id


def test_words_are_counted_once(cluster: Cluster, applications: list[WordCount]) -> None:
    words = Words(cluster)
    one, two = applications
    one.start()
    two.start()
    words.until(KILLED_AT, one, two)
    one.kill()
    words.until(NODE_KILLED_AT, two)
    killed = coordinator(cluster)
    one.start()
    cluster.kill(killed)
    words.until(LAST, one, two)
    cluster.start_node(killed)
    words.all_counted(one, two)
    words.check()


def test_the_tool_shows_and_moves_a_group(
    cluster: Cluster, applications: list[WordCount], tools: Tools
) -> None:
    console, words, (one, two) = Console(tools, cluster), Words(cluster), applications
    one.start()
    two.start()
    words.until(KILLED_AT, one, two)
    assert [APPLICATION] in console.rows("--list") or console.try_("--list").out.split() == [
        APPLICATION
    ]
    of_group = ("--describe", "--group", APPLICATION)
    eventually(lambda: console.rows(*of_group, "--state")[0][-2] == "Stable", CALL_SECONDS_MAX)
    members = console.rows(*of_group, "--members")
    assert len(members) == len(applications)
    tasks = " ".join(" ".join(row) for row in members)
    assert {"ACTIVE:", "STANDBY:"} <= set(tasks.split()), members
    offsets = {(row[1], int(row[2])) for row in console.rows(*of_group, "--offsets")}
    assert {(SOURCE, n) for n in range(PARTITIONS)} < offsets
    busy = console.try_(
        "--reset-offsets",
        "--all-input-topics",
        "--to-earliest",
        "--execute",
        "--group",
        APPLICATION,
    )
    assert "inactive" in busy.out + busy.err, busy
    topics = cluster.admin().list_topics(timeout=CALL_SECONDS_MAX).topics
    assert {len(topics[name].partitions) for name in (CHANGELOG, REPARTITION)} == {PARTITIONS}

    for application in applications:
        application.end()
    eventually(lambda: console.rows(*of_group, "--state")[0][-2] == "Empty", CALL_SECONDS_MAX)
    moved = console.try_(
        "--reset-offsets",
        "--input-topic",
        SOURCE,
        "--to-earliest",
        "--execute",
        "--group",
        APPLICATION,
    )
    assert moved.code == 0, moved
    rows = console.rows(*of_group, "--offsets")
    assert {row[3] for row in rows if row[1] == SOURCE} == {"0"}, rows
    gone = console.try_("--delete", "--group", APPLICATION)
    assert gone.code == 0, gone
    assert console.try_("--list").out.strip() == ""
    assert SINK in cluster.admin().list_topics(timeout=CALL_SECONDS_MAX).topics
