"""Groups in tests: the broker's settings, and members that are confluent-kafka consumers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from .features import GROUPS, enable_feature
from .helpers import consumer, produce_all, producer
from .process import BrokerProcess
from .waiting import eventually

SESSION_SECONDS = 2.0
GROUP_SIZE_MAX = 20
GROUP_SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.max.size": str(GROUP_SIZE_MAX),
    "group.consumer.max.size": str(GROUP_SIZE_MAX),
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.streams.initial.rebalance.delay.ms": "0",
}

# The ways in which librdkafka shares partitions: three assignors of the classic protocol, and the
# protocol in which the broker assigns.
CLASSIC = {"session.timeout.ms": int(SESSION_SECONDS * 1000), "heartbeat.interval.ms": 200}
STRATEGIES: dict[str, dict[str, Any]] = {
    "range": {"partition.assignment.strategy": "range", **CLASSIC},
    "roundrobin": {"partition.assignment.strategy": "roundrobin", **CLASSIC},
    "cooperative-sticky": {"partition.assignment.strategy": "cooperative-sticky", **CLASSIC},
    "consumer": {"group.protocol": "consumer"},
}

Partition = tuple[str, int]


class Member:
    """A consumer that has subscribed, and how often its assignment has changed."""

    def __init__(
        self, broker: BrokerProcess, group: str, topics: list[str], settings: dict[str, Any]
    ) -> None:
        base = {"group_id": group, "auto_offset_reset": "earliest"}
        self.client: Consumer = consumer(broker, **(base | settings))
        self.changes = 0
        self.values: list[bytes] = []
        self.errors: list[Any] = []
        self.client.subscribe(topics, on_assign=self._changed, on_revoke=self._changed)

    def _changed(self, _client: Consumer, partitions: list[TopicPartition]) -> None:
        self.changes += bool(partitions)

    @property
    def owned(self) -> set[Partition]:
        return {(p.topic, p.partition) for p in self.client.assignment()}

    def poll(self, seconds: float = 0.02) -> None:
        """Takes what has arrived; this is also what carries a rebalance on."""
        for message in self.client.consume(500, timeout=seconds):
            if message.error() is not None:
                self.errors.append(message.error())
            else:
                self.values.append(message.value() or b"")

    def close(self) -> None:
        self.client.close()


@contextlib.contextmanager
def members() -> Iterator[list[Member]]:
    """A list of members that are closed at the end, in whatever state they are."""
    made: list[Member] = []
    try:
        yield made
    finally:
        for member in made:
            with contextlib.suppress(RuntimeError):  # closed by the test already
                member.close()


def partitions_of(topic: str, count: int) -> set[Partition]:
    return {(topic, p) for p in range(count)}


def settle(
    sharing: Iterable[Member],
    wanted: set[Partition],
    seconds: float = 60.0,
    *,
    most: int | None = None,
) -> None:
    """Polls until the members own all of `wanted` between them, none of it twice, and everyone has
    some, and nobody more than `most`: partitions that move one by one are shared on the way, too.
    """
    sharing = list(sharing)

    def shared() -> bool:
        for member in sharing:
            member.poll()
        owned = [member.owned for member in sharing]
        shares = [len(of_one) for of_one in owned]
        if not all(shares) or max(shares) > (most or len(wanted)):
            return False
        return sum(shares) == len(wanted) and set().union(*owned) == wanted

    eventually(shared, seconds, every=0)


def publish(broker: BrokerProcess, topic: str, values: Iterable[str], partitions: int = 1) -> None:
    """Publishes values to the partitions in turn."""
    messages = [{"value": v, "partition": i % partitions} for i, v in enumerate(values)]
    produce_all(producer(broker), topic, messages)


def polled(sharing: Iterable[Member], count: int, seconds: float = 60.0) -> list[str]:
    """Polls until the members have got `count` messages between them; returns all, sorted."""
    sharing = list(sharing)

    def enough() -> bool:
        for member in sharing:
            member.poll()
        return sum(len(member.values) for member in sharing) >= count

    eventually(enough, seconds, every=0)
    return sorted(value.decode() for member in sharing for value in member.values)


def start_group_broker(broker: BrokerProcess) -> BrokerProcess:
    """Starts a broker with the settings above and both protocols switched on."""
    broker.settings |= GROUP_SETTINGS
    broker.start()
    if broker.KIND == "kafka":
        enable_feature(broker.bootstrap, GROUPS)
    return broker
