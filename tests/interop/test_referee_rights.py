"""The rows of `support.rights_rows` on Apache Kafka with its StandardAuthorizer and on a node.

Users log in by SASL/PLAIN, and what they are answered must be the same, field by field. Kafka's own
tool for ACLs works on a node.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest
from support import reference
from support.calls import RawTopic, fetch_request
from support.node import NodeProcess
from support.process import BrokerProcess, free_port
from support.raw import Closed, RawClient
from support.referee import ANSWER_SECONDS_MAX, Answers, differences, plain
from support.reference import KafkaProcess
from support.rights_rows import ALL_TOPICS, ROWS, TOPIC_DENIED, USERS, WORLD, codes
from support.tools import Tools
from support.transactions import newest_features
from support.waiting import CALL_SECONDS_MAX

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("referee-rights")]

FETCH_VERSION = 12
PASSWORD = "secret"
RETRY_SECONDS = 0.05
_LOGINS = " ".join(f'user_{user}="{PASSWORD}"' for user in (*USERS.values(), "ann"))
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
OWN_DEFAULT = "config_source"
"""Kafka keeps a default of the cluster for min.insync.replicas, and says so."""
ID_OF_A_DENIED_TOPIC = "move shares/responses/0/topic_id"
"""Kafka tells it to who may not know whether there is such a topic."""


def secured(broker: BrokerProcess, controller: str = "") -> int:
    """Adds a listener where users log in; its port."""
    port = free_port()
    clients = f"PLAINTEXT://{broker.bootstrap},SASL_PLAINTEXT://{broker.host}:{port}"
    broker.settings |= {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "listeners": clients + controller,
        "advertised.listeners": clients,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{_MODULE} required {_LOGINS};",
    }
    return port


class Secured:
    """A broker, and the port where users log in."""

    def __init__(self, broker: BrokerProcess, port: int) -> None:
        self.broker = broker
        self.port = port
        self.ids: dict[str, bytes] = {}

    def login(self, user: str) -> RawClient:
        client = RawClient(self.broker.host, self.port, seconds=ANSWER_SECONDS_MAX)
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = f"\0{user}\0{PASSWORD}".encode()
        answer = client.call(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert answer.error_code == 0, answer
        return client

    def make_world(self) -> None:
        with RawClient(self.broker.host, self.broker.port) as root:
            for request, version in WORLD:
                deadline = time.monotonic() + CALL_SECONDS_MAX
                while left := codes(root.call(request, version)):
                    assert time.monotonic() < deadline, f"{request}: {left}"
                    time.sleep(RETRY_SECONDS)
            topics = root.call(ALL_TOPICS, 12).topics
        self.ids = {topic.name: topic.topic_id for topic in topics}

    def answers(self) -> tuple[Answers, dict[str, list[int]]]:
        """What each row is answered, and its codes."""
        told, said = {}, {}
        for row in ROWS:
            with self.login(USERS[row.label]) as client:
                try:
                    answer = client.call(row.request(self.ids), row.version)
                except (Closed, TimeoutError) as e:
                    told[row.label], said[row.label] = repr(e), [-1]
                    continue
            told[row.label] = plain(answer)
            said[row.label] = codes(answer)
        return told, said


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    reason = reference.missing()
    if reason:
        pytest.skip(reason)
    broker = KafkaProcess(tmp_path_factory.mktemp("kafka-rights"))
    port = secured(broker, f",CONTROLLER://{broker.host}:{broker.controller_port}")
    with broker:
        newest_features(broker)
        made = Secured(broker, port)
        made.make_world()
        yield made


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    broker = NodeProcess(tmp_path_factory.mktemp("node-rights"))
    port = secured(broker)
    with broker:
        newest_features(broker)
        made = Secured(broker, port)
        made.make_world()
        yield made


def test_kafka_refuses_the_same(kafka: Secured, node: Secured) -> None:
    theirs, their_codes = kafka.answers()
    ours, our_codes = node.answers()
    expected = {row.label: row.codes for row in ROWS}
    apart = [
        f"{label}: {their_codes[label]} | {our_codes[label]} {codes}"
        for label, codes in expected.items()
        if not their_codes[label] == our_codes[label] == codes
    ]
    apart += [
        f"{label}{line}"
        for label in theirs
        for line in differences(theirs[label], ours[label])
        if OWN_DEFAULT not in line and f"{label}{line}".partition(":")[0] != ID_OF_A_DENIED_TOPIC
    ]
    assert not apart, "Apache Kafka | this node\n" + "\n".join(apart)


def test_kafkas_tool_for_acls_works_on_a_node(node: Secured) -> None:
    tools = Tools()
    try:
        at = ("--bootstrap-server", node.broker.bootstrap)
        rule = ("--allow-principal", "User:ann", "--operation", "Read", "--topic", "there")
        with node.login("ann") as ann:
            assert codes(ann.call(fetch(node), FETCH_VERSION)) == [TOPIC_DENIED]
            added = tools.run("acls", *at, "--add", *rule)
            assert added.code == 0, added
            assert codes(ann.call(fetch(node), FETCH_VERSION)) == []
            listed = tools.run("acls", *at, "--list", "--principal", "User:ann")
            assert "principal=User:ann, host=*, operation=READ, permissionType=ALLOW" in listed.out
            removed = tools.run("acls", *at, "--remove", "--force", *rule)
            assert removed.code == 0, removed
            assert codes(ann.call(fetch(node), FETCH_VERSION)) == [TOPIC_DENIED]
        listed = tools.run("acls", *at, "--list", "--principal", "User:ann")
        assert "ann" not in listed.out.replace("User:ann`", "")
    finally:
        tools.close()


def fetch(node: Secured) -> FetchRequest:
    return fetch_request([(RawTopic("there", node.ids["there"]), {0: 0})], FETCH_VERSION)
