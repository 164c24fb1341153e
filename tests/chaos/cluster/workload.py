"""Clients that work at a bounded rate and record what they asked for and were told.

Each client is a thread of its own with its own connection: idempotent producers with acks=all,
readers that follow every partition, members of groups in both protocols, and one that makes topics.
librdkafka is told to try again soon, so that what is measured is the cluster and not its patience.
Values are short and unique; the size of a message is in its key.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from support.helpers import NO_DUPLICATES, QUIET

from .history import (
    Acked,
    Committed,
    Created,
    Failed,
    Owned,
    Partition,
    Read,
    Recorder,
    Sent,
    Stuck,
    Trouble,
)

KEY_BYTES_MAX = 400
FLUSH_SECONDS_MAX = 60.0
JOIN_SECONDS_MAX = 90.0
COMMIT_EVERY_SECONDS = 0.25
TOPIC_EVERY_SECONDS = 3.0
UNANSWERED_MAX = 2_000

IMPATIENT = {
    "retry.backoff.ms": 30,
    "retry.backoff.max.ms": 200,
    "reconnect.backoff.ms": 30,
    "reconnect.backoff.max.ms": 300,
    "topic.metadata.refresh.interval.ms": 1_000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "socket.connection.setup.timeout.ms": 2_000,
    "socket.timeout.ms": 6_000,
    **QUIET,
}
GROUPS: dict[str, dict[str, Any]] = {
    "classic": {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 500,
    },
    "consumer": {"group.protocol": "consumer"},
}
# Where there are rights, all clients have those that they need.
DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "it may not use its topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "it may not use its group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "it may not use the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "it may not use its transactional id",
    KafkaError.SASL_AUTHENTICATION_FAILED: "it is not let in",
    KafkaError._AUTHENTICATION: "it is not let in",
}
# What a client may be told in passing: the cluster is busy with a fault, or the group changes.
NEVER = {
    KafkaError._AUTO_OFFSET_RESET: "its offset is gone",
    KafkaError._LOG_TRUNCATION: "what it has read is gone",
    KafkaError.OFFSET_OUT_OF_RANGE: "its offset is gone",
    KafkaError._FATAL: "a fatal error",
    **DENIED,
}


Servers = Mapping[str, str]
"""Where a client finds the cluster, and how it logs in; in librdkafka's words."""


class Plan(NamedTuple):
    """How much work, and on what."""

    topic: str = "chaos"
    partitions: int = 6
    producers: int = 3
    messages_per_second: float = 240.0
    readers: int = 2
    members_per_group: int = 2
    share_members: int = 2
    # Transactional workers, which write to a topic of their own.
    target: str = "transactions"
    target_partitions: int = 3
    writers: int = 2
    chains: int = 2

    def all(self) -> list[Partition]:
        return [(self.topic, number) for number in range(self.partitions)]

    def targets(self) -> list[Partition]:
        return [(self.target, number) for number in range(self.target_partitions)]


class Client(threading.Thread):
    """A thread that works until it is told to stop; what it stumbles over is recorded."""

    def __init__(self, name: str, recorder: Recorder) -> None:
        super().__init__(name=name, daemon=True)
        self.recorder = recorder
        self.stopping = threading.Event()

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.trouble(f"the client ended with {error!r}")

    def work(self) -> None:
        raise NotImplementedError

    def trouble(self, text: str) -> None:
        self.recorder.add(Trouble(self.recorder.now(), self.name, text))

    def join_in_time(self) -> None:
        """Wait for its end; one that hangs in a call of its library must not keep the judgement."""
        self.join(JOIN_SECONDS_MAX)
        if self.is_alive():
            self.hangs()

    def hangs(self) -> None:
        """It does not end."""
        self.trouble("the client does not end")


class ProducerClient(Client):
    """Sends numbered messages to all partitions in turn."""

    def __init__(self, name: str, servers: Servers, plan: Plan, recorder: Recorder) -> None:
        super().__init__(name, recorder)
        self._plan = plan
        self._pause = plan.producers / plan.messages_per_second
        self._sizes = random.Random(name)
        self._client = Producer(
            {
                **servers,
                "acks": "all",
                "linger.ms": 2,
                "request.timeout.ms": 3_000,
                "queue.buffering.max.messages": UNANSWERED_MAX,
                **NO_DUPLICATES,
                **IMPATIENT,
            }
        )

    def work(self) -> None:
        number = 0
        while not self.stopping.wait(self._pause):
            partition = (self._plan.topic, number % self._plan.partitions)
            self._send(number, partition)
            number += 1
            self._client.poll(0)
        if left := self._client.flush(FLUSH_SECONDS_MAX):
            self.trouble(f"{left} messages were never answered")

    def _send(self, number: int, partition: Partition) -> None:
        value = f"{self.name}-{number}"
        called = self.recorder.now()

        def answered(error: Any, message: Any) -> None:
            now = self.recorder.now()
            if error is None:
                offset = -1 if message.offset() is None else message.offset()
                self.recorder.add(Acked(called, now, self.name, number, partition, offset, value))
            else:
                failed = Failed(called, now, self.name, partition, value, error.str(), False)
                self.recorder.add(failed)
                if error.fatal() or error.code() in DENIED:
                    self.trouble(f"{DENIED.get(error.code(), 'a fatal error')}: {error}")

        self.recorder.add(Sent(called, self.name, number, partition, value))
        key = bytes(self._sizes.randrange(KEY_BYTES_MAX))
        while True:
            try:
                self._client.produce(
                    partition[0], value, key, partition=partition[1], on_delivery=answered
                )
                return
            except BufferError:
                self._client.poll(0.05)


class ReaderClient(Client):
    """Follows every partition from the beginning, by assignment."""

    def __init__(
        self, name: str, servers: Servers, partitions: Iterable[Partition], recorder: Recorder
    ) -> None:
        super().__init__(name, recorder)
        self._partitions = list(partitions)
        self.positions = dict.fromkeys(self._partitions, 0)
        self._client = Consumer(
            {
                **servers,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                **IMPATIENT,
            }
        )

    def work(self) -> None:
        self._client.assign([TopicPartition(t, p, 0) for t, p in self._partitions])
        while not self.stopping.is_set():
            called = self.recorder.now()
            for message in self._client.consume(500, timeout=0.1):
                record(self, self.name, called, message, self.positions)
        self._client.close()


def record(
    client: Client, reader: str, called: float, message: Any, positions: dict[Partition, int]
) -> None:
    """Notes one message, or one error that may not be."""
    error = message.error()
    if error is not None:
        if error.code() in NEVER or error.fatal():
            client.trouble(f"{NEVER.get(error.code(), 'a fatal error')}: {error}")
        return
    partition = (message.topic(), message.partition())
    offset = message.offset()
    now = client.recorder.now()
    client.recorder.add(Read(called, now, reader, partition, offset, message.value().decode()))
    positions[partition] = offset + 1


class MemberClient(Client):
    """A member of a group: reads what it is given and commits what it has read."""

    def __init__(
        self, name: str, group: str, servers: Servers, topic: str, recorder: Recorder
    ) -> None:
        super().__init__(name, recorder)
        self.group = group
        self._servers = servers
        self._topic = topic
        self._turns = 0
        self._committed_at = 0.0
        self.positions: dict[Partition, int] = {}
        self._client = Consumer(
            {
                **servers,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
                **GROUPS[group],
                **IMPATIENT,
            }
        )

    def hangs(self) -> None:
        """librdkafka's threads may block each other for good when brokers leave and come back (seen
        in 2.16: one waits for the lock of the client with that of a partition, another the other
        way round). The cluster is to blame only if it does not serve another member either.
        """
        probe = MemberClient("probe", self.group, self._servers, self._topic, Recorder())
        probe.start()
        deadline = time.monotonic() + JOIN_SECONDS_MAX
        while not probe.recorder.count(Owned) and time.monotonic() < deadline:
            time.sleep(0.1)
        probe.stopping.set()
        probe.join(JOIN_SECONDS_MAX)
        if probe.is_alive() or not probe.recorder.count(Owned):
            self.trouble("the client does not end, and a new member of its group cannot work")
        else:
            self.recorder.add(Stuck(self.recorder.now(), self.name))

    def work(self) -> None:
        self._client.subscribe(
            [self._topic], on_assign=self._got, on_revoke=self._gives, on_lost=self._lost
        )
        while not self.stopping.is_set():
            called, before = self.recorder.now(), self._turns
            messages = self._client.consume(500, timeout=0.05)
            # A call in which partitions changed hands may give what was read before and after.
            reader = f"{self.name}#{before}-{self._turns}"
            for message in messages:
                record(self, reader, called, message, self.positions)
            if called - self._committed_at > COMMIT_EVERY_SECONDS:
                self._commit()
        self._commit()
        self._client.close()

    def _commit(self) -> None:
        """Commits what was read; a group that is busy refuses, and the next commit says more."""
        self._committed_at = called = self.recorder.now()
        mine = {(p.topic, p.partition) for p in self._client.assignment()}
        wanted = [TopicPartition(*p, o) for p, o in self.positions.items() if p in mine]
        if not wanted:
            return
        try:
            done = self._client.commit(offsets=wanted, asynchronous=False)
        except KafkaException:
            return
        now = self.recorder.now()
        for each in done or []:
            if each.error is None:
                partition = (each.topic, each.partition)
                self.recorder.add(
                    Committed(called, now, self.group, self.name, partition, each.offset)
                )

    def _note(self, partitions: list[TopicPartition], until: bool) -> None:
        now = self.recorder.now()
        for each in partitions:
            partition = (each.topic, each.partition)
            self.recorder.add(Owned(now, self.group, self.name, partition, until))

    def _got(self, _client: Consumer, partitions: list[TopicPartition]) -> None:
        # A reader reads onwards from where it begins, so what comes now is read by another one.
        self._turns += 1
        self._note(partitions, until=False)

    def _gives(self, _client: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit()
        self._drop(partitions)

    def _lost(self, _client: Consumer, partitions: list[TopicPartition]) -> None:
        self._drop(partitions)

    def _drop(self, partitions: list[TopicPartition]) -> None:
        self._note(partitions, until=True)
        for each in partitions:
            self.positions.pop((each.topic, each.partition), None)


class TopicClient(Client):
    """Makes a topic now and then; one that was acknowledged has to stay."""

    def __init__(self, servers: Servers, recorder: Recorder, copies: int) -> None:
        super().__init__("topics", recorder)
        self._copies = copies
        self._client = AdminClient({**servers, **IMPATIENT})

    def work(self) -> None:
        number = 0
        while not self.stopping.wait(TOPIC_EVERY_SECONDS):
            number += 1
            name = f"made-{number}"
            made = self._client.create_topics(
                [NewTopic(name, 2, self._copies)], request_timeout=5.0, operation_timeout=3.0
            )
            with contextlib.suppress(KafkaException):
                made[name].result(10.0)
                self.recorder.add(Created(self.recorder.now(), name))


class Workload:
    """All clients of a run."""

    def __init__(self, servers: Servers, plan: Plan, recorder: Recorder, copies: int) -> None:
        self.plan = plan
        self.producers = [
            ProducerClient(f"p{i}", servers, plan, recorder) for i in range(plan.producers)
        ]
        self.readers = [
            ReaderClient(f"r{i}", servers, plan.all(), recorder) for i in range(plan.readers)
        ]
        self.members = [
            MemberClient(f"{group}-{i}", group, servers, plan.topic, recorder)
            for group in GROUPS
            for i in range(plan.members_per_group)
        ]
        self.topics = TopicClient(servers, recorder, copies)

    def start(self) -> None:
        for client in [*self.producers, *self.readers, *self.members, self.topics]:
            client.start()

    def stop_writing(self) -> None:
        """No new messages; returns when everything that was sent has its answer."""
        _stop([self.topics, *self.producers])

    def stop_reading(self) -> None:
        _stop([*self.readers, *self.members])


def _stop(clients: Iterable[Client]) -> None:
    clients = list(clients)
    for client in clients:
        client.stopping.set()
    for client in clients:
        if client.ident is not None:
            client.join_in_time()
