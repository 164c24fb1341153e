"""Kafka Streams with `group.protocol=streams` on a cluster: the broker assigns its tasks, words are
counted once over kills of its processes and of a node, and Apache's tool shows and moves the group.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions

from penstock.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from support.cluster import Cluster
from support.tools import Done, Tools
from support.transactions import SETTINGS, newest_features
from support.waiting import CALL_SECONDS_MAX, eventually
from support.word_count import APPLICATION, PARTITIONS, SOURCE, STREAMS, WordCount, Words

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
        """The lines about the group in what a command prints, as words."""
        done = self.try_(*args, "--group", APPLICATION)
        assert done.code == 0, done
        rows = [line.split() for line in done.out.splitlines()]
        return [row for row in rows if row[:1] == [APPLICATION]]

    @property
    def state(self) -> str:
        ((*_, state, _members),) = self.rows("--describe", "--state")
        return state


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
    assert console.try_("--list").out.split() == [APPLICATION]
    eventually(lambda: console.state == "Stable", CALL_SECONDS_MAX)
    members = console.rows("--describe", "--members")
    assert len(members) == len(applications)
    for member in members:
        assert {"ACTIVE:", "STANDBY:"} <= set(member), members
    offsets = {(row[1], int(row[2])) for row in console.rows("--describe", "--offsets")}
    assert {(topic, n) for topic in (SOURCE, REPARTITION) for n in range(PARTITIONS)} <= offsets
    topics = cluster.admin().list_topics(timeout=CALL_SECONDS_MAX).topics
    assert {len(topics[name].partitions) for name in (CHANGELOG, REPARTITION)} == {PARTITIONS}
    reset = ("--reset-offsets", "--input-topic", SOURCE, "--to-earliest", "--execute")
    busy = console.try_(*reset, "--group", APPLICATION)
    assert "inactive" in busy.out + busy.err, busy

    for application in applications:
        application.end()
    eventually(lambda: console.state == "Empty", CALL_SECONDS_MAX)
    moved = console.rows(*reset)
    assert sorted(moved) == [[APPLICATION, SOURCE, str(n), "0"] for n in range(PARTITIONS)]
    asked = [ConsumerGroupTopicPartitions(APPLICATION)]
    call = cluster.admin().list_consumer_group_offsets(asked)[APPLICATION]
    stored = call.result(CALL_SECONDS_MAX).topic_partitions
    assert {p.offset for p in stored if p.topic == SOURCE} == {0}
    deleted = console.try_("--delete", "--group", APPLICATION)
    assert "successful" in deleted.out, deleted
    assert console.try_("--list").out.strip() == ""
