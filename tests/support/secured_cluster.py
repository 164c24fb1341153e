"""A cluster on its way from plain listeners to encrypted ones, and clients that must not notice.

A message is its number; it goes to the partition that the number says, so that what a partition
holds shows what was lost, stored twice or out of order. `Load` sends for as long as it is told to,
`Follower` is a consumer group that reads along.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from .certificates import CertificateFiles
from .cluster import Cluster
from .helpers import NO_DUPLICATES, QUIET
from .process import free_port
from .secured import KEY_PASSWORD
from .secured_node import PLAIN_MODULE
from .waiting import CALL_SECONDS_MAX, eventually

TOPIC = "t"
PARTITIONS = 3
NODES = (1, 2, 3)
NODE_LOGIN = 'username="node" password="of-node"'
USERS = 'user_node="of-node" user_ann="of-ann"'
ACL_SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:node;User:ann",
}
AT_WORK_ANSWERS = 20


class SecuredCluster:
    """Three nodes; each has a port for a plain and for an encrypted listener."""

    def __init__(self, root: Path) -> None:
        self.files = CertificateFiles(root / "certificates", KEY_PASSWORD)
        self.cluster = Cluster(3, root / "nodes")
        self.secure_ports = {node_id: free_port() for node_id in NODES}

    def plain_at(self, node_id: int) -> str:
        return self.cluster.nodes[node_id].bootstrap

    def secure_at(self, node_id: int) -> str:
        return f"127.0.0.1:{self.secure_ports[node_id]}"

    def configure(
        self, node_id: int, *, plain: bool, secure: bool, between: str, **more: str
    ) -> None:
        """Which listeners a node has from its next start on, and by which it reaches others."""
        at = {"PLAINTEXT": self.plain_at, "SASL_SSL": self.secure_at}
        names = ["PLAINTEXT"] * plain + ["SASL_SSL"] * secure
        listeners = ",".join(f"{name}://{at[name](node_id)}" for name in names)
        voters = ",".join(f"{one}@{at[between](one)}" for one in NODES)
        self.cluster.nodes[node_id].settings |= {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "inter.broker.listener.name": between,
            "controller.quorum.voters": voters,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.files.broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.files.authority),
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": (
                f"{PLAIN_MODULE} required {NODE_LOGIN} {USERS};"
            ),
            **more,
        }

    def plain_client(self) -> dict[str, Any]:
        return {"bootstrap.servers": ",".join(map(self.plain_at, NODES)), **QUIET}

    def secure_client(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": ",".join(map(self.secure_at, NODES)),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "ann",
            "sasl.password": "of-ann",
            "ssl.ca.location": str(self.files.authority),
            **QUIET,
        }

    def launch(self) -> None:
        for node in self.cluster.nodes.values():
            node.launch()
        for node in self.cluster.nodes.values():
            node.wait_ready()

    def in_sync(self, settings: dict[str, Any]) -> bool:
        """Whether every replica of the topic is, and of the consumers' offsets."""
        topics = AdminClient(settings).list_topics(timeout=CALL_SECONDS_MAX).topics.values()
        partitions = [one for topic in topics for one in topic.partitions.values()]
        return all(len(one.isrs) == len(one.replicas) == len(NODES) for one in partitions)

    def leader(self, settings: dict[str, Any]) -> int:
        found = AdminClient(settings).list_topics(TOPIC, timeout=CALL_SECONDS_MAX)
        return int(found.topics[TOPIC].partitions[0].leader)

    def has_said(self, node_id: int, text: str) -> bool:
        """Whether the present or an earlier run of a node has logged it."""
        return text in self.cluster.nodes[node_id].log_path.read_text(encoding="utf-8")


class Load:
    """Sends numbers until it is ended; `acked` has when each was acknowledged."""

    def __init__(self, settings: dict[str, Any], first: int = 0) -> None:
        self.acked: dict[int, float] = {}
        self.failed: list[Any] = []
        self.next = first
        self._end = Event()
        self._producer = Producer({**settings, **NO_DUPLICATES, "linger.ms": 1})
        self._thread = Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        while not self._end.is_set():
            number = self.next
            self._producer.produce(
                TOPIC,
                b"%d" % number,
                partition=number % PARTITIONS,
                on_delivery=self._done(number),
            )
            self.next += 1
            self._producer.poll(0.005)

    def _done(self, number: int) -> Callable[[Any, Any], None]:
        def done(error: Any, _: Any) -> None:
            if error is None:
                self.acked[number] = time.monotonic()
            else:
                self.failed.append(error)

        return done

    def goes_on(self) -> None:
        """Waits until more is acknowledged, of each partition."""
        first = self.next
        eventually(
            lambda: (
                all(
                    any(number in self.acked for number in range(first + p, self.next, PARTITIONS))
                    for p in range(PARTITIONS)
                )
                and len(self.acked) > AT_WORK_ANSWERS
            )
        )

    def longest_pause_s(self) -> float:
        """Of one partition."""
        times = [
            sorted(at for number, at in self.acked.items() if number % PARTITIONS == p)
            for p in range(PARTITIONS)
        ]
        return max(b - a for one in times for a, b in itertools.pairwise(one))

    def end(self) -> None:
        self._end.set()
        self._thread.join()
        assert self._producer.flush(CALL_SECONDS_MAX) == 0
        assert self.failed == []


class Follower:
    """A consumer of the group `g` that reads along until it is ended."""

    def __init__(self, settings: dict[str, Any], seen: dict[int, list[int]] | None = None) -> None:
        self.seen_numbers: dict[int, list[int]] = defaultdict(list) if seen is None else seen
        self._end = Event()
        own = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._consumer = Consumer({**own, **settings})
        self._thread = Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        self._consumer.subscribe([TOPIC])
        while not self._end.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and not message.error():
                number = int(message.value() or b"")
                self.seen_numbers[message.partition() or 0].append(number)

    def has_all(self, count: int) -> bool:
        return sum(map(len, self.seen_numbers.values())) >= count

    def end(self) -> None:
        """Commits what was read, and leaves."""
        self._end.set()
        self._thread.join()
        self._consumer.commit(asynchronous=False)
        self._consumer.close()


def make_topic(settings: dict[str, Any]) -> None:
    admin = AdminClient(settings)
    wanted = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    eventually(lambda: len(admin.list_topics(timeout=CALL_SECONDS_MAX).brokers) == len(NODES))
    admin.create_topics([wanted])[TOPIC].result(CALL_SECONDS_MAX)


def is_open(address: str) -> bool:
    """Whether anything listens there."""
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port))).close()
    except ConnectionRefusedError:
        return False
    return True


def check_all(settings: dict[str, Any], count: int) -> None:
    """The topic holds the numbers below `count`: none is missing, none twice, each in its place."""
    reader = Follower({**settings, "group.id": "check"})
    try:
        eventually(lambda: reader.has_all(count))
    finally:
        reader.end()
    assert_in_order(reader.seen_numbers, count)


def assert_in_order(seen: dict[int, list[int]], count: int) -> None:
    assert seen == {p: list(range(p, count, PARTITIONS)) for p in range(PARTITIONS)}
