"""Share groups of real clients on a cluster of three nodes whose nodes and members die.

What was acknowledged never comes again, and nothing is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from penstock.base.ids import uuid_text
from penstock.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from support import reference
from support.calls import find_topic
from support.cluster import Cluster
from support.features import SHARE_VERSION, enable_feature
from support.groups import GROUP_SETTINGS
from support.share_groups import CLUSTER_SETTINGS, SHARE_SETTINGS, set_group
from support.share_workers import ShareWorker, check, settled
from support.waiting import eventually
from support.writers import ConfluentWriter

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS = 4
MEMBERS = 3
PER_SECOND = 150
DELIVERY_COUNT_LIMIT = 10
"""More than the faults of a test can cost a record."""
DONE_SECONDS_MAX = 60.0
PAUSE_SECONDS = 4.0
GROUP_KEY, SHARE_KEY = 0, 2
# A partition that is assigned to killed members alone waits for as long.
SOON_MISSED = {
    "group.share.session.timeout.ms": "4000",
    "group.share.min.session.timeout.ms": "4000",
}


def clients() -> list[object]:
    reason = reference.missing()
    marks = [pytest.mark.java, *([pytest.mark.skip(reason)] if reason else [])]
    return ["confluent", pytest.param("java", marks=marks)]


@pytest.fixture(scope="module")
def shared_cluster(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = GROUP_SETTINGS | SHARE_SETTINGS | CLUSTER_SETTINGS | SOON_MISSED
    with Cluster(3, tmp_path_factory.mktemp("cluster"), settings, kind=target) as cluster:
        if target == "kafka":
            enable_feature(cluster.bootstrap, SHARE_VERSION)
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    """The cluster that the tests share: whole, whatever the last one did to it."""
    down = [node_id for node_id in shared_cluster.nodes if node_id not in shared_cluster.running]
    shared_cluster.start_node(*down)
    shared_cluster.wait_complete()
    return shared_cluster


class Run:
    """A topic that is written to all the time, and the members of a group that do what comes."""

    def __init__(self, cluster: Cluster, client: str, topic: str) -> None:
        self.cluster = cluster
        self.client = client
        self.topic = topic
        self.group = f"g-{topic}"
        self.workers: list[ShareWorker] = []
        cluster.make_topic(topic, PARTITIONS)
        with cluster.raw(cluster.running[0]) as raw:
            settings = {"share_delivery_count_limit": str(DELIVERY_COUNT_LIMIT)}
            set_group(raw, self.group, share_auto_offset_reset="earliest", **settings)
        self.writer = ConfluentWriter(cluster.bootstrap, topic, PARTITIONS, PER_SECOND)
        self.writer.start()

    def join(self, members: int = MEMBERS) -> ShareWorker:
        worker = ShareWorker(self.client, self.cluster.bootstrap, self.group, self.topic, members)
        self.workers.append(worker)
        eventually(lambda: worker.has_work, DONE_SECONDS_MAX)
        return worker

    def keeps_up(self) -> None:
        """What was written until now is done."""
        written = {(answer.partition, answer.offset) for answer in list(self.writer.answers)}
        assert written
        eventually(lambda: written <= settled(self.workers), DONE_SECONDS_MAX)

    def ends(self) -> None:
        """Nothing is lost, nothing came again."""
        self.writer.stop()
        self.keeps_up()
        check(self.workers, DELIVERY_COUNT_LIMIT)
        eventually(lambda: self.lag() == 0, DONE_SECONDS_MAX)
        for worker in self.workers:
            if not worker.was_killed:
                worker.stop()
        assert self.writer.errors == []
        check(self.workers, DELIVERY_COUNT_LIMIT)

    def lag(self) -> int:
        """How many records are not done, as the group's coordinator says; -1 if it cannot."""
        asked = DescribeShareGroupOffsetsRequestGroup(group_id=self.group, topics=None)
        with self.cluster.raw(self.coordinator(GROUP_KEY, self.group)) as raw:
            answer = raw.call(DescribeShareGroupOffsetsRequest(groups=[asked]), 1)
        parts = [part for topic in answer.groups[0].topics for part in topic.partitions]
        lags = [part.lag for part in parts if part.error_code == 0]
        return sum(lags) if len(lags) == PARTITIONS and min(lags) >= 0 else -1

    def coordinator(self, kind: int, key: str) -> int:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])

        def found() -> int:
            [answer] = self.cluster.ask(request, 6).coordinators
            return int(answer.node_id) if answer.error_code == 0 else 0

        return eventually(found)

    def share_coordinator(self, partition: int = 0) -> int:
        with self.cluster.raw(self.cluster.running[0]) as raw:
            topic_id = find_topic(raw, self.topic).id
        return self.coordinator(SHARE_KEY, f"{self.group}:{uuid_text(topic_id)}:{partition}")

    def close(self) -> None:
        self.writer.stop()
        for worker in self.workers:
            worker.end()


@pytest.fixture
def run(
    cluster: Cluster, topic_name: Callable[[], str], request: pytest.FixtureRequest
) -> Iterator[Run]:
    made = Run(cluster, request.param, topic_name())
    yield made
    made.close()


each_client = pytest.mark.parametrize("run", clients(), indirect=True)


@each_client
def test_killed_nodes(run: Run) -> None:
    """Of a leader, of the group's coordinator, of a coordinator of the states."""
    run.join()
    run.join()
    for find in (
        lambda: run.cluster.leader(run.topic, 0),
        lambda: run.coordinator(GROUP_KEY, run.group),
        run.share_coordinator,
    ):
        victim = find()
        run.cluster.kill(victim)
        run.keeps_up()
        run.cluster.start_node(victim)
        run.cluster.wait_in_sync()
        run.keeps_up()
    run.ends()


@each_client
def test_a_paused_node_and_a_rolling_restart(run: Run) -> None:
    run.join()
    run.join()
    victim = run.cluster.leader(run.topic, 0)
    run.cluster.pause(victim)
    time.sleep(PAUSE_SECONDS)
    run.cluster.resume(victim)
    run.keeps_up()
    for node_id in run.cluster.running:
        run.cluster.restart(node_id)
        run.cluster.wait_complete()
        run.cluster.wait_in_sync()
        run.keeps_up()
    run.ends()


@each_client
def test_members_that_come_and_go(run: Run) -> None:
    """Some leave, some are killed; those who stay do what they held."""
    run.join()
    for turn in range(4):
        worker = run.join()
        run.keeps_up()
        if turn % 2:
            worker.kill()
        else:
            worker.stop()
        run.keeps_up()
    run.ends()
