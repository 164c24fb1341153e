"""A cluster whose nodes speak TLS and SASL to each other survives the loss of a leader; clients of
a plain one move to an encrypted listener. No message is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from support.certificates import CertificateFiles
from support.cluster import Cluster
from support.helpers import NO_DUPLICATES, QUIET
from support.process import free_port
from support.secured import KEY_PASSWORD
from support.secured_node import PLAIN_MODULE
from support.waiting import CALL_SECONDS_MAX, eventually

pytestmark = [pytest.mark.penstock_only, pytest.mark.xdist_group("security")]

TOPIC = "t"
NODES = (1, 2, 3)
NODE_LOGIN = 'username="node" password="of-node"'
USERS = 'user_node="of-node" user_ann="of-ann"'


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

    def configure(self, node_id: int, *, plain: bool, secure: bool, between: str) -> None:
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

    def in_sync(self, settings: dict[str, Any], topic: str = TOPIC) -> bool:
        """Whether all three replicas of the topic are."""
        admin = AdminClient(settings)
        partition = admin.list_topics(topic, timeout=CALL_SECONDS_MAX).topics[topic].partitions[0]
        return len(partition.isrs) == len(NODES)

    def leader(self, settings: dict[str, Any]) -> int:
        found = AdminClient(settings).list_topics(TOPIC, timeout=CALL_SECONDS_MAX)
        return int(found.topics[TOPIC].partitions[0].leader)


class Load:
    """Sends numbers until it is ended; `acked` are those that the cluster has."""

    def __init__(self, settings: dict[str, Any], first: int = 0) -> None:
        self.acked: list[int] = []
        self.failed: list[Any] = []
        self.next = first
        self._end = Event()
        self._producer = Producer({**settings, **NO_DUPLICATES, "linger.ms": 1})
        self._thread = Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        while not self._end.is_set():
            self._producer.produce(TOPIC, b"%d" % self.next, on_delivery=self._done(self.next))
            self.next += 1
            self._producer.poll(0.005)

    def _done(self, number: int) -> Callable[[Any, Any], None]:
        return lambda error, _: (
            self.failed.append(error) if error is not None else self.acked.append(number)
        )

    def goes_on(self) -> None:
        """Waits until more is acknowledged."""
        before = len(self.acked)
        eventually(lambda: len(self.acked) > before + 20)

    def end(self) -> None:
        self._end.set()
        self._thread.join()
        assert self._producer.flush(CALL_SECONDS_MAX) == 0
        assert self.failed == []


def make_topic(settings: dict[str, Any]) -> None:
    admin = AdminClient(settings)
    wanted = NewTopic(TOPIC, 1, 3, config={"min.insync.replicas": "2"})
    eventually(lambda: len(admin.list_topics(timeout=CALL_SECONDS_MAX).brokers) == len(NODES))
    admin.create_topics([wanted])[TOPIC].result(CALL_SECONDS_MAX)


def all_messages(settings: dict[str, Any], count: int) -> list[int]:
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    seen: list[int] = []
    deadline = time.monotonic() + CALL_SECONDS_MAX
    while len(seen) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            seen.append(int(message.value() or b""))
    consumer.close()
    return seen


@pytest.mark.timeout(180)
def test_a_killed_leader(tmp_path: Path) -> None:
    secured = SecuredCluster(tmp_path)
    try:
        for node_id in NODES:
            secured.configure(node_id, plain=False, secure=True, between="SASL_SSL")
        secured.launch()
        client = secured.secure_client()
        make_topic(client)
        load = Load(client)
        load.goes_on()
        leader = secured.leader(client)
        secured.cluster.kill(leader)
        eventually(lambda: secured.leader(client) not in (leader, -1))
        load.goes_on()
        secured.cluster.start_node(leader)
        eventually(lambda: secured.in_sync(client))
        load.end()
        assert all_messages(client, load.next) == list(range(load.next))
    finally:
        secured.cluster.close()


@pytest.mark.timeout(180)
def test_clients_of_a_plain_cluster_move_to_an_encrypted_listener(tmp_path: Path) -> None:
    """One node after the other gets the new listener; nodes go on by the old one."""
    secured = SecuredCluster(tmp_path)
    try:
        for node_id in NODES:
            secured.configure(node_id, plain=True, secure=False, between="PLAINTEXT")
        secured.launch()
        plain, safe = secured.plain_client(), secured.secure_client()
        make_topic(plain)
        load = Load(plain)
        for node_id in NODES:
            secured.configure(node_id, plain=True, secure=True, between="PLAINTEXT")
            secured.cluster.restart(node_id)
            eventually(lambda: secured.in_sync(plain))
            load.goes_on()
        load.end()
        moved = Load(safe, load.next)
        moved.goes_on()
        moved.end()
        assert all_messages(safe, moved.next) == list(range(moved.next))
    finally:
        secured.cluster.close()
