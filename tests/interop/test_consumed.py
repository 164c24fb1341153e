"""`penstock.retention.consumed`: three nodes give back what every group has consumed, no more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from support.cluster import Cluster
from support.helpers import QUIET, produce_all
from support.share_groups import SHARE_SETTINGS, set_group, share_member
from support.waiting import CALL_SECONDS_MAX, eventually

pytestmark = [pytest.mark.penstock_only, pytest.mark.timeout(180)]

SETTINGS = SHARE_SETTINGS | {
    # One coordinator, that nobody stands in for.
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "3",
    "log.retention.check.interval.ms": "200",
    "log.segment.delete.delay.ms": "0",
}
TOPIC = {
    "penstock.retention.consumed": "all-groups",
    "retention.ms": "-1",
    "segment.bytes": str(1 << 20),
}
VALUE = b"v" * 400_000
EARLIEST = -2
RECORDS = 8
"""Two fit into a segment."""
PASSES_SECONDS = 1.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(3, tmp_path_factory.mktemp("consumed"), SETTINGS) as made:
        yield made


@pytest.fixture
def topic(cluster: Cluster, topic_name: Callable[[], str]) -> str:
    return cluster.make_topic(topic_name(), 1, config=TOPIC)


def publish(cluster: Cluster, topic: str, count: int = RECORDS) -> None:
    client = Producer({"bootstrap.servers": cluster.bootstrap, "batch.num.messages": 1, **QUIET})
    produce_all(client, topic, [{"value": VALUE} for _ in range(count)])


def set_consumed(cluster: Cluster, topic: str, value: str) -> None:
    entry = ConfigEntry(
        "penstock.retention.consumed", value, incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])

    def altered() -> bool:
        """With a new client: one that knows of a controller which has died waits for that one."""
        client = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        try:
            for done in client.incremental_alter_configs([resource], request_timeout=2).values():
                done.result(CALL_SECONDS_MAX)
        except KafkaException:
            return False
        return True

    eventually(altered)


class Group:
    """A consumer group, by its commits."""

    def __init__(self, cluster: Cluster, group: str, topic: str) -> None:
        self._cluster, self._topic = cluster, topic
        self.client = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, **QUIET})

    def commit(self, offset: int) -> None:
        where = [TopicPartition(self._topic, 0, offset)]
        self.client.commit(offsets=where, asynchronous=False)

    def start(self) -> int:
        """Where the log begins, as its leader says."""
        asked = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
        request = ListOffsetsRequest(
            topics=[ListOffsetsTopic(name=self._topic, partitions=[asked])]
        )
        [topic] = self._cluster.ask(request, 7, [self._cluster.leader(self._topic)]).topics
        [found] = topic.partitions
        return int(found.offset) if not found.error_code else -1


@pytest.fixture
def group(cluster: Cluster, group_id: str, topic: str) -> Iterator[Group]:
    made = Group(cluster, group_id, topic)
    yield made
    made.client.close()


def segments(cluster: Cluster, node_id: int, topic: str) -> int:
    return len(list(cluster.nodes[node_id].data_dir.glob(f"{topic}-0/*.log")))


def begins_everywhere(cluster: Cluster, topic: str, group: Group, start: int, left: int) -> None:
    eventually(lambda: group.start() == start)
    eventually(lambda: all(segments(cluster, n, topic) == left for n in cluster.running))


def stays(group: Group, start: int) -> None:
    """For some passes. A pass that comes late lets this miss a fault, and reports none."""
    time.sleep(PASSES_SECONDS)
    assert group.start() == start


def test_a_queue_gives_its_disk_back_beside_a_consumer_group(
    cluster: Cluster, topic: str, group: Group, group_id: str
) -> None:
    share = f"share-{group_id}"
    with cluster.raw(cluster.running[0]) as raw:
        set_group(raw, share, share_auto_offset_reset="earliest")
    publish(cluster, topic, 5)
    group.commit(1)
    with share_member(cluster.bootstrap, share, topic) as member:
        assert len(member.take(5)) == 5
        stays(group, 0)
        group.commit(5)
        begins_everywhere(cluster, topic, group, 4, 1)
        publish(cluster, topic, 3)
        group.commit(8)
        stays(group, 4)
        assert len(member.take(3)) == 3
        begins_everywhere(cluster, topic, group, 6, 1)


def test_another_leader_goes_on(cluster: Cluster, topic: str, group: Group) -> None:
    publish(cluster, topic)
    group.commit(5)
    begins_everywhere(cluster, topic, group, 4, 2)
    coordinator, leader = cluster.leader("__consumer_offsets"), cluster.leader(topic)
    if leader == coordinator:  # the group has to be there
        cluster.restart(leader)
        cluster.wait_in_sync(topic)
        leader = eventually(lambda: cluster.leader(topic))
    cluster.kill(leader)
    eventually(lambda: cluster.leader(topic) != leader)
    eventually(lambda: group.start() == 4)
    group.commit(RECORDS)
    eventually(lambda: group.start() == RECORDS - 2)
    cluster.start_node(leader)
    cluster.wait_in_sync(topic)
    begins_everywhere(cluster, topic, group, RECORDS - 2, 1)


def test_a_group_that_cannot_be_asked_for_keeps_its_messages(
    cluster: Cluster, topic: str, group: Group
) -> None:
    publish(cluster, topic)
    group.commit(3)
    begins_everywhere(cluster, topic, group, 2, 3)
    set_consumed(cluster, topic, "none")
    group.commit(RECORDS)
    coordinator = cluster.leader("__consumer_offsets")
    cluster.kill(coordinator)
    eventually(lambda: cluster.leader(topic) != coordinator)
    set_consumed(cluster, topic, "all-groups")
    stays(group, 2)
    cluster.start_node(coordinator)
    cluster.wait_in_sync(topic)
    begins_everywhere(cluster, topic, group, RECORDS - 2, 1)
