"""Small things that several suites need: waiting, topics, and confluent-kafka in two lines."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from .calls import leads_all
from .process import BrokerProcess
from .raw import RawClient
from .waiting import CALL_SECONDS_MAX, eventually

# A broker that a test stops is no news; librdkafka would write a line per attempt to reconnect.
QUIET = {"log_level": 2}

# For producers whose duplicates a test counts. librdkafka gives up a message that has no answer
# after `message.timeout.ms`, goes on with a new epoch, and sends again what came after it, which
# may be stored already: no broker can know the second for a copy of the first. So it never gives
# up here, and the test has a deadline of its own, mostly that of `flush`.
NO_DUPLICATES: Mapping[str, Any] = {"enable.idempotence": True, "message.timeout.ms": 0}
GIVE_UP_MS = 20_000


@functools.cache
def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, **QUIET})


def admin(broker: BrokerProcess) -> AdminClient:
    """An admin client of librdkafka; one per broker lives on, since its answers come by futures."""
    return _admin(broker.bootstrap)


def producer(broker: BrokerProcess, **config: Any) -> Producer:
    """A producer of librdkafka; `_` in a keyword stands for `.`."""
    own = _dotted(config)
    base: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "linger.ms": 2, **QUIET}
    patience = (
        NO_DUPLICATES if own.get("enable.idempotence") else {"message.timeout.ms": GIVE_UP_MS}
    )
    return Producer(base | patience | own)


def consumer(broker: BrokerProcess, **config: Any) -> Consumer:
    """A consumer of librdkafka that commits nothing; `_` in a keyword stands for `.`."""
    base = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "fetch.queue.backoff.ms": 5,
        **QUIET,
    }
    return Consumer(base | _dotted(config))


def _dotted(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in config.items()}


def produce_all(client: Producer, topic: str, messages: list[Mapping[str, Any]]) -> list[Message]:
    """Sends keyword sets for `Producer.produce` and returns the acknowledged messages in order."""
    acked: list[Message] = []
    failed: list[Any] = []

    def done(error: Any, message: Message) -> None:
        failed.append(error) if error is not None else acked.append(message)

    for message in messages:
        client.produce(topic, on_delivery=done, **{"partition": 0, **message})
        client.poll(0)
    left = client.flush(CALL_SECONDS_MAX)
    assert not failed, failed[:3]
    assert left == 0, f"{left} messages have no answer"
    return acked


def read(
    broker: BrokerProcess,
    topic: str,
    count: int,
    *,
    partition: int = 0,
    offset: int = 0,
    seconds: float = CALL_SECONDS_MAX,
    **config: Any,
) -> list[Message]:
    """Reads `count` messages of one partition from `offset` by an assigned consumer."""
    client = consumer(broker, **config)
    try:
        client.assign([TopicPartition(topic, partition, offset)])
        return take(client, count, seconds)
    finally:
        client.close()


def take(client: Consumer, count: int, seconds: float = CALL_SECONDS_MAX) -> list[Message]:
    """The next `count` messages of a consumer that has its assignment."""
    deadline = time.monotonic() + seconds
    got: list[Message] = []
    while len(got) < count:
        assert time.monotonic() < deadline, f"{len(got)} of {count} messages in {seconds} s"
        for message in client.consume(min(count - len(got), 10_000), timeout=0.5):
            if not _about_groups(message):
                assert message.error() is None, message.error()
                got.append(message)
    return got


def next_event(client: Consumer, seconds: float = CALL_SECONDS_MAX) -> Message:
    """The next message or error of a consumer that has its assignment."""
    deadline = time.monotonic() + seconds
    while True:
        assert time.monotonic() < deadline, f"nothing in {seconds} s"
        message = client.poll(0.5)
        if message is not None and not _about_groups(message):
            return message


def _about_groups(message: Message) -> bool:
    """Whether librdkafka only reports that its group has no coordinator.

    confluent-kafka demands a group id even from a consumer that is assigned by hand, and librdkafka
    looks for the group's coordinator whether or not anyone will commit.
    """
    error = message.error()
    return error is not None and error.str().startswith("FindCoordinator response error")


def make_topic(
    broker: BrokerProcess, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
) -> str:
    """Creates a topic and waits until each of its partitions is served."""
    client = admin(broker)
    made = client.create_topics([NewTopic(name, partitions, 1, config=dict(config or {}))])
    made[name].result(CALL_SECONDS_MAX)

    with RawClient(broker.host, broker.port) as raw:
        # Metadata may name a leader that does not serve yet.
        eventually(lambda: leads_all(raw, name, partitions))
    return name


class TopicMaker:
    """Makes topics with fresh names on one broker."""

    def __init__(self, broker: BrokerProcess, names: Callable[[], str]) -> None:
        self._broker = broker
        self._names = names

    def __call__(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        return make_topic(self._broker, self._names(), partitions, config)
