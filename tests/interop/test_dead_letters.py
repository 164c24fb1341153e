"""Dead letters of share groups: consumers of confluent-kafka, nodes as killed processes."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from support.cluster import Cluster
from support.features import SHARE_VERSION, enable_feature
from support.helpers import NO_DUPLICATES, QUIET, make_topic, produce_all, producer, read
from support.process import BrokerProcess
from support.raw import RawClient
from support.share_groups import (
    ACCEPT,
    CLUSTER_SETTINGS,
    REJECT,
    RELEASE,
    SHARE_SETTINGS,
    ShareMember,
    set_group,
    share_member,
)
from support.waiting import CALL_SECONDS_MAX, eventually

pytestmark = [pytest.mark.penstock_only, pytest.mark.timeout(300)]

ENABLED = {"errors.deadletterqueue.group.enable": "true"}
TRANSACTION = 1
RECORDS, PARTITIONS = 300, 3
SECONDS_MAX = 90.0


@pytest.fixture(scope="module")
def node(
    broker_maker: Callable[[Path], BrokerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    broker = broker_maker(tmp_path_factory.mktemp("dead-letters"))
    broker.settings |= SHARE_SETTINGS | {"transaction.state.log.num.partitions": "3"}
    with broker:
        enable_feature(broker.bootstrap, SHARE_VERSION, 2)
        yield broker


def give_dead_letters(node: BrokerProcess, group: str, topic: str, **settings: str) -> None:
    with RawClient(node.host, node.port) as client:
        set_group(
            client,
            group,
            share_auto_offset_reset="earliest",
            errors_deadletterqueue_topic_name=topic,
            **settings,
        )


def headers(message: Message) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in message.headers() or []}


def publish(node: BrokerProcess, topic: str, *values: bytes) -> None:
    sent = [{"key": b"k", "value": v, "headers": [("trace", b"1")]} for v in values]
    produce_all(producer(node), topic, sent)


@pytest.mark.parametrize("copy", [True, False])
def test_what_is_rejected_or_released_too_often(
    node: BrokerProcess, topic_name: Callable[[], str], group_id: str, copy: bool
) -> None:
    topic = make_topic(node, topic_name())
    dlq = make_topic(node, f"dlq.{topic}", config=ENABLED)
    copies = {"errors_deadletterqueue_copy_record_enable": str(copy).lower()}
    give_dead_letters(node, group_id, dlq, share_delivery_count_limit="2", **copies)
    publish(node, topic, b"rejected", b"accepted", b"released")
    says = {b"rejected": REJECT, b"accepted": ACCEPT, b"released": RELEASE}
    with share_member(node.bootstrap, group_id, topic) as member:
        left = 4  # the released one comes twice
        while left:
            for message in member.next():
                member.say(says[message.value() or b""], message)
                left -= 1
        found = read(node, dlq, 2, isolation_level="read_committed")
        assert member.poll(0.5) == []
    by_offset = {headers(message)["__dlq.errors.offset"]: message for message in found}
    assert by_offset.keys() == {"0", "2"}
    rejected, released = by_offset["0"], by_offset["2"]
    assert headers(rejected) == {
        "trace": "1",
        "__dlq.errors.topic": topic,
        "__dlq.errors.partition": "0",
        "__dlq.errors.offset": "0",
        "__dlq.errors.group": group_id,
        "__dlq.errors.delivery.count": "1",
        "__dlq.errors.message": "Offset rejected by client.",
        "__dlq.errors.reason": "rejected",
    }
    assert headers(released)["__dlq.errors.delivery.count"] == "2"
    assert headers(released)["__dlq.errors.reason"] == "limit"
    wanted = (b"k", b"rejected") if copy else (None, None)
    assert (rejected.key(), rejected.value()) == wanted


def test_what_waits_for_its_topic(
    node: BrokerProcess, topic_name: Callable[[], str], group_id: str
) -> None:
    topic = make_topic(node, topic_name())
    dlq = f"dlq.{topic}"
    give_dead_letters(node, group_id, dlq)
    publish(node, topic, b"first", b"second")
    with share_member(node.bootstrap, group_id, topic) as member:
        for _ in range(2):
            for message in member.next():
                member.say(REJECT, message)
            if member.poll(0.5) == []:
                break
    make_topic(node, dlq, config=ENABLED)
    found = read(node, dlq, 2, isolation_level="read_committed")
    assert [headers(message)["__dlq.errors.offset"] for message in found] == ["0", "1"]


# -- a cluster whose nodes die -----------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(3, tmp_path, CLUSTER_SETTINGS) as made:
        enable_feature(made.bootstrap, SHARE_VERSION, 2)
        yield made


class Worker:
    """Rejects every second message, and goes on whatever it is told."""

    def __init__(self, cluster: Cluster, group: str, topic: str) -> None:
        self._member = ShareMember(cluster.bootstrap, group, topic)
        self._client = self._member.client

    def work(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(KafkaException):
                for message in self._client.poll(timeout=0.2):
                    if message.error() is None:
                        rejects = is_rejected(message.value() or b"")
                        self._client.acknowledge(message, REJECT if rejects else ACCEPT)
                self._client.commit_sync(timeout=2.0)

    def close(self) -> None:
        with contextlib.suppress(KafkaException):
            self._member.close()


def is_rejected(value: bytes) -> bool:
    return int(value) % 2 == 1


def transaction_coordinator(cluster: Cluster, id_: str) -> int:
    def found() -> int:
        request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[id_])
        [answer] = cluster.ask(request, 4).coordinators
        return int(answer.node_id) if not answer.error_code else 0

    return eventually(found)


class Found:
    """The dead letters that a reader of committed records has come by."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.offsets: Counter[tuple[str, str]] = Counter()
        config = {"group.id": "reads", "isolation.level": "read_committed", **QUIET}
        self._client = Consumer(cluster.client | config)
        self._client.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])

    def read(self, seconds: float = 0.5) -> int:
        for message in self._client.consume(1_000, timeout=seconds):
            if message.error() is None:
                of = headers(message)
                self.offsets[of["__dlq.errors.partition"], of["__dlq.errors.offset"]] += 1
        return len(self.offsets)

    def close(self) -> None:
        self._client.close()


@pytest.mark.slow
def test_each_is_written_once_while_nodes_are_killed(
    cluster: Cluster,
    group_id: str,
    record_property: Callable[[str, object], None],
    request: pytest.FixtureRequest,
) -> None:
    seed = random.randrange(2**32)
    record_property("PENSTOCK_KILL_SEED", seed)
    chance = random.Random(seed)
    cluster.make_topic("tasks", PARTITIONS)
    dlq = cluster.make_topic("dlq.tasks", PARTITIONS, config=ENABLED)
    with cluster.raw(1) as client:
        set_group(
            client,
            group_id,
            share_auto_offset_reset="earliest",
            share_delivery_count_limit="10",
            errors_deadletterqueue_topic_name=dlq,
        )
    worker, found = Worker(cluster, group_id, "tasks"), Found(cluster, dlq)
    request.addfinalizer(worker.close)
    request.addfinalizer(found.close)
    publisher = Producer(cluster.client | NO_DUPLICATES | QUIET)

    def killed() -> Iterator[Callable[[], int]]:
        for index in range(PARTITIONS):
            yield lambda index=index: cluster.leader("tasks", index)
            id_ = f"__dlq.{group_id}:tasks:{index}"
            yield lambda id_=id_: transaction_coordinator(cluster, id_)

    sent = 0
    for victim in killed():
        part = [{"value": b"%d" % n} for n in range(sent, sent + RECORDS // 6)]
        sent += len(part)
        produce_all(publisher, "tasks", part)
        worker.work(chance.uniform(0.2, 2.0))
        node_id = victim()
        cluster.kill(node_id)
        worker.work(2.0)
        cluster.start_node(node_id)
        cluster.wait_in_sync()
    deadline = time.monotonic() + SECONDS_MAX
    while found.read() < RECORDS // 2:
        assert time.monotonic() < deadline, (
            f"{len(found.offsets)} dead letters: {cluster.log_tails()}"
        )
        worker.work(0.5)
    worker.work(2.0)
    found.read(CALL_SECONDS_MAX / 10)
    assert len(found.offsets) == RECORDS // 2
    assert set(found.offsets.values()) == {1}
