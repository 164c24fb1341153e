"""The audit log of real nodes: what real clients do is in it, what is secret is not, nobody but
nodes writes to it, and it goes on when a node dies.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from support.cluster import Cluster
from support.helpers import QUIET
from support.quotas import set_quotas
from support.secured import PASSWORD, PLAIN_PASSWORD, PLAIN_USER, USER
from support.secured_node import SecuredNode
from support.waiting import CALL_SECONDS_MAX, eventually

pytestmark = [pytest.mark.penstock_only, pytest.mark.xdist_group("security")]

AUDIT = "__audit"
ALL = "management,denied,authentication,publish,consume"
Event = dict[str, Any]


class Audit:
    """All events of a cluster, read again and again."""

    def __init__(self, bootstrap: str) -> None:
        self._client = {"bootstrap.servers": bootstrap, **QUIET}
        self.lines: list[bytes] = []

    def read(self) -> list[Event]:
        """Every event that is there now."""
        found = AdminClient(self._client).list_topics(timeout=CALL_SECONDS_MAX).topics.get(AUDIT)
        if found is None or found.error is not None:
            return []
        consumer = Consumer({**self._client, "group.id": "audit", "enable.auto.commit": False})
        ends: dict[int, int] = {}
        for index in found.partitions:
            place = TopicPartition(AUDIT, index)
            ends[index] = consumer.get_watermark_offsets(place, timeout=CALL_SECONDS_MAX)[1]
        consumer.assign([TopicPartition(AUDIT, index, 0) for index in ends])
        lines = []
        for _ in range(sum(ends.values())):
            message = consumer.poll(CALL_SECONDS_MAX)
            assert message is not None
            assert message.error() is None
            lines.append(message.value() or b"")
        consumer.close()
        self.lines = lines
        return [json.loads(line) for line in lines]

    def has(self, wanted: Callable[[Event], bool]) -> Event:
        def found() -> Event | None:
            return next((event for event in self.read() if wanted(event)), None)

        event = eventually(found, every=0.3)
        assert event is not None
        return event

    def activity(self, operation: str, name: str, status: str = "Success") -> Event:
        """That of a request about a resource."""
        return self.has(
            lambda e: (
                e.get("api", {}).get("operation") == operation
                and e["status"] == status
                and name in [resource["name"] for resource in e.get("resources", ())]
            )
        )


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    made = SecuredNode(tmp_path_factory.mktemp("audited") / "node")
    made.settings |= {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "penstock.audit.enable": "true",
        "penstock.audit.categories": ALL,
    }
    with made:
        made.add_user()
        yield made


@pytest.fixture
def audit(node: SecuredNode) -> Audit:
    return Audit(node.bootstrap)


def plain_admin(bootstrap: str, **settings: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, **QUIET, **settings})


def make(admin: AdminClient, name: str) -> None:
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(CALL_SECONDS_MAX)


def test_quotas_that_are_set_are_told(node: SecuredNode, audit: Audit) -> None:
    set_quotas(node, {"user": "ann", "client-id": None}, request_percentage=50.0)
    event = audit.activity("AlterClientQuotas", "user=ann,client-id=<default>")
    assert event["resources"][0]["data"]["changes"] == ["request_percentage=50.0"]
    assert event["activity_name"] == "Update"


def test_topics_are_made_changed_and_deleted(node: SecuredNode, audit: Audit) -> None:
    admin = plain_admin(node.bootstrap, **{"client.id": "the\x1bapp"})
    make(admin, "kept")
    with pytest.raises(KafkaException):
        make(admin, "kept")
    change = ConfigEntry("retention.ms", "1234", incremental_operation=AlterConfigOpType.SET)
    kept = ConfigResource(ConfigResource.Type.TOPIC, "kept", incremental_configs=[change])
    admin.incremental_alter_configs([kept])[kept].result(CALL_SECONDS_MAX)
    admin.delete_topics(["kept"])["kept"].result(CALL_SECONDS_MAX)

    made = audit.activity("CreateTopics", "kept")
    assert made["actor"]["user"]["uid"] == "User:ANONYMOUS"
    assert made["actor"]["app_name"] == "the\x1bapp"
    assert made["src_endpoint"]["ip"] == "127.0.0.1"
    assert (made["class_uid"], made["activity_name"]) == (6003, "Create")
    refused = audit.activity("CreateTopics", "kept", "Failure")
    assert refused["status_detail"] == "TOPIC_ALREADY_EXISTS"
    changed = audit.activity("IncrementalAlterConfigs", "kept")
    assert changed["resources"][0]["data"]["changes"] == ["set retention.ms=1234"]
    audit.activity("DeleteTopics", "kept")
    uids = [event["metadata"]["uid"] for event in audit.read()]
    assert len(uids) == len(set(uids))
    told = [e for e in audit.read() if e.get("api", {}).get("operation") == "DeleteTopics"]
    assert len(told) == 1  # once, and not at the controller too


def test_logins_denials_acls_and_users(node: SecuredNode, audit: Audit) -> None:
    root = plain_admin(node.bootstrap)
    make(root, "closed")
    way = node.way("SASL_PLAINTEXT", "SCRAM-SHA-256")
    wrong = AdminClient({**way, **QUIET, "sasl.password": "wrong-" + PASSWORD})
    with pytest.raises(KafkaException):
        wrong.list_topics(timeout=2.0)
    failed = audit.has(lambda e: e["class_uid"] == 3002 and e["status"] == "Failure")
    assert failed["user"]["name"] == USER
    assert failed["auth_protocol"] == "SCRAM-SHA-256"

    right = AdminClient({**way, **QUIET})
    with pytest.raises(KafkaException):
        right.delete_topics(["closed"])["closed"].result(CALL_SECONDS_MAX)
    entered = audit.has(lambda e: e["class_uid"] == 3002 and e["status"] == "Success")
    assert entered["user"]["uid"] == f"User:{USER}"
    denied = audit.activity("delete", "closed", "Failure")
    assert denied["unmapped"]["category"] == "denied"
    assert denied["actor"]["user"]["name"] == USER
    audit.activity("DeleteTopics", "closed", "Failure")

    acl = AclBinding(
        ResourceType.TOPIC,
        "closed",
        ResourcePatternType.LITERAL,
        f"User:{USER}",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    root.create_acls([acl])[acl].result(CALL_SECONDS_MAX)
    data = audit.activity("CreateAcls", "closed")["resources"][0]["data"]
    assert (data["principal"], data["operation"], data["permission"]) == (
        f"User:{USER}",
        "read",
        "allow",
    )
    audit.activity("AlterUserScramCredentials", USER)
    secrets = [PASSWORD, PLAIN_PASSWORD, "salt", "hmac"]
    text = b"\n".join(audit.lines).decode()
    assert not [secret for secret in secrets if json.dumps(secret)[1:-1] in text]


def test_publishing_and_consuming(node: SecuredNode, audit: Audit) -> None:
    make(plain_admin(node.bootstrap), "used")
    client = {"bootstrap.servers": node.bootstrap, **QUIET}
    producer = Producer(client)
    for _ in range(3):
        producer.produce("used", b"m", partition=0)
        assert producer.flush(CALL_SECONDS_MAX) == 0
    consumer = Consumer({**client, "group.id": "g"})
    consumer.assign([TopicPartition("used", 0, 0)])
    assert consumer.poll(CALL_SECONDS_MAX) is not None
    consumer.close()
    assert audit.activity("Produce", "used")["unmapped"]["category"] == "publish"
    assert audit.activity("Fetch", "used")["unmapped"]["category"] == "consume"
    operations = [e["api"]["operation"] for e in audit.read() if "api" in e]
    names = [r["name"] for e in audit.read() for r in e.get("resources", ())]
    assert "Fetch" in operations
    assert AUDIT not in names  # reading the log is no event


def test_nobody_but_nodes_writes_to_it_trims_or_deletes_it(node: SecuredNode, audit: Audit) -> None:
    audit.has(lambda _: True)
    client = {"bootstrap.servers": node.bootstrap, **QUIET}
    errors: list[Any] = []
    producer = Producer(client)
    producer.produce(AUDIT, b"forged", partition=0, on_delivery=lambda e, _: errors.append(e))
    assert producer.flush(CALL_SECONDS_MAX) == 0
    assert len(errors) == 1
    assert errors[0] is not None
    root = plain_admin(node.bootstrap)
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        root.delete_topics([AUDIT])[AUDIT].result(CALL_SECONDS_MAX)
    place = TopicPartition(AUDIT, 0, 1)
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        root.delete_records([place])[place].result(CALL_SECONDS_MAX)
    audit.read()
    assert b"forged" not in audit.lines


def test_who_may_read_it(node: SecuredNode, audit: Audit) -> None:
    audit.has(lambda _: True)
    way = node.way("SASL_PLAINTEXT", "PLAIN")
    consumer = Consumer({**way, **QUIET, "group.id": "g"})
    consumer.assign([TopicPartition(AUDIT, 0, 0)])
    message = consumer.poll(CALL_SECONDS_MAX)
    assert message is not None
    assert message.error() is not None
    consumer.close()
    denied = audit.activity("describe", AUDIT, "Failure")
    assert denied["actor"]["user"]["name"] == PLAIN_USER


def test_the_command_line_shows_it(node: SecuredNode, audit: Audit) -> None:
    audit.has(lambda _: True)
    argv = [sys.executable, "-m", "penstock.cli", "topic", "consume", AUDIT]
    argv += ["-b", node.bootstrap, "--from", "beginning", "--count", "1"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert '"class_uid":' in done.stdout


def test_a_flood_is_dropped_and_counted(tmp_path: Path) -> None:
    node = SecuredNode(tmp_path / "node")
    node.settings |= {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "penstock.audit.enable": "true",
        "penstock.audit.queue.max.events": "2",
    }
    with node:
        way = AdminClient({**node.way("SASL_PLAINTEXT", "PLAIN"), **QUIET})
        for future in way.delete_topics([f"t{n}" for n in range(50)]).values():
            with pytest.raises(KafkaException):
                future.result(CALL_SECONDS_MAX)
        eventually(lambda: node.metric("penstock_audit_events_dropped_total") > 0)
        Audit(node.bootstrap).has(lambda e: "events are lost" in e.get("status_detail", ""))
        assert node.metric("penstock_audit_events_written_total") > 0


def test_nothing_is_done_unseen_where_it_must_be_audited(tmp_path: Path) -> None:
    node = SecuredNode(tmp_path / "node")
    node.settings |= {
        "penstock.audit.enable": "true",
        "penstock.audit.queue.max.events": "5",
        "penstock.audit.overflow": "refuse",
        "penstock.audit.excluded.principals": "User:ANONYMOUS",
    }
    with node:
        audit, root = Audit(node.bootstrap), plain_admin(node.bootstrap)
        user = AdminClient({**node.way("SASL_PLAINTEXT", "PLAIN"), **QUIET})
        make(user, "before")
        audit.activity("CreateTopics", "before")
        set_min_isr(root, 2)
        done, errors = [], []
        for number in range(12):
            try:
                make(user, f"t{number}")
                done.append(f"t{number}")
            except KafkaException as e:
                errors.append(str(e))
        assert len(errors) >= 6
        assert [text for text in errors if "POLICY_VIOLATION" not in text] == []
        assert node.metric("penstock_audit_requests_refused_total") >= len(errors)
        set_min_isr(root, 1)  # who is excluded can mend it
        for name in done:
            audit.activity("CreateTopics", name)
        make(user, "after")


def set_min_isr(admin: AdminClient, count: int) -> None:
    """Of the audit log."""
    how = AlterConfigOpType.SET
    entry = ConfigEntry("min.insync.replicas", str(count), incremental_operation=how)
    log = ConfigResource(ConfigResource.Type.TOPIC, AUDIT, incremental_configs=[entry])
    admin.incremental_alter_configs([log])[log].result(CALL_SECONDS_MAX)


def test_a_cluster_goes_on_when_a_node_dies(tmp_path: Path) -> None:
    cluster = Cluster(3, tmp_path, {"penstock.audit.enable": "true"})
    with cluster.start():
        everywhere = cluster.bootstrap
        audit = Audit(everywhere)
        for node_id, node in cluster.nodes.items():
            make(plain_admin(node.bootstrap), f"by-{node_id}")
        for node_id in cluster.nodes:
            made = audit.activity("CreateTopics", f"by-{node_id}")
            assert made["unmapped"]["node_id"] in cluster.nodes
        topic = plain_admin(everywhere).list_topics(AUDIT, timeout=CALL_SECONDS_MAX).topics[AUDIT]
        assert [len(p.replicas) for p in topic.partitions.values()] == [3, 3, 3]
        dead, *left = list(cluster.nodes)
        cluster.kill(dead)
        for node_id in left:
            make(plain_admin(cluster.nodes[node_id].bootstrap), f"after-{node_id}")
        audit = Audit(",".join(cluster.nodes[one].bootstrap for one in left))
        for node_id in left:
            audit.activity("CreateTopics", f"after-{node_id}")
        cluster.nodes[dead].start()  # it leads nothing, and sends what it has to others
        make(plain_admin(cluster.nodes[dead].bootstrap), "back")
        audit.activity("CreateTopics", "back")
        again = audit.has(
            lambda e: e["activity_name"] == "Start" and e["unmapped"]["node_id"] == dead
        )
        assert again["class_uid"] == 6002
