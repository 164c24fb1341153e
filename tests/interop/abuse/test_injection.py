"""Names that others read: in the log, in metrics, and those of classes in settings."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.abuse.rig import LOCKED, admin, allow, handshake, login, raw, say
from penstock.wire.apis import ApiKey
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.schema import Message
from support.raw import Closed, RawClient
from support.rights_rows import codes
from support.secured_node import SecuredNode
from support.waiting import eventually

pytestmark = [pytest.mark.penstock_only, pytest.mark.xdist_group("security")]

FORGED = "1999-01-01T00:00:00.000Z ERROR    penstock.node: the node is on fire"
BREAKS = ("\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x1e", "\x85", "\u2028", "\u2029", "\0\n")
EVIL = [f"x{line}{FORGED}" for line in BREAKS]
EVIL += [f'x"}}\n{{"time": "1999", "message": "{FORGED}"}}', "x\x1b[2J\x1b[1;1H" + FORGED]
LEVEL, FORM = "penstock.log.level", "penstock.log.format"
SAMPLES_MORE_MAX = 30
MANY = 100
NODE_RESOURCE, SET, DELETE = 4, 0, 1


@pytest.fixture(scope="module", params=["text", "json"])
def talkative(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredNode]:
    """A node that logs as much as it can, in one of the two forms."""
    root = tmp_path_factory.mktemp(request.param) / "node"
    with SecuredNode(root, LOCKED | {LEVEL: "debug", FORM: request.param}) as made:
        made.add_user()
        yield made


def requests(name: str) -> list[tuple[Message, int]]:
    """About a thing of that name, by somebody who may not."""
    new = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return [
        (ApiVersionsRequest(client_software_name="a", client_software_version=name), 3),
        (MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 9),
        (CreateTopicsRequest(topics=[new]), 7),
        (DescribeGroupsRequest(groups=[name]), 5),
        (FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 4),
        (InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1_000), 4),
    ]


def failed_login(node: SecuredNode, mechanism: str, message: bytes) -> None:
    with raw(node) as client:
        handshake(client, mechanism)
        with contextlib.suppress(Closed):
            say(client, message)


def test_a_name_forges_no_line_of_the_log(talkative: SecuredNode) -> None:
    node = talkative
    for name in EVIL:
        with login(node) as user, admin(node) as root:
            user.client_id = name
            for request, version in requests(name):
                for client in (user, root):
                    with contextlib.suppress(Closed):
                        client.call(request, version)
        with contextlib.suppress(Closed), raw(node) as client:
            client.client_id = name
            handshake(client, name)
        failed_login(node, "PLAIN", f"\0{name.replace(chr(0), '')}\0wrong".encode())
        failed_login(node, "SCRAM-SHA-256", f"n,,n={name},r=abc".encode())
        failed_login(node, "OAUTHBEARER", f"n,,\x01auth=Bearer {name}\x01\x01".encode())
        allow(node, (3, 2, name), user=name)
        alter(node, "log.retention.ms", name)
    lines = node.log_path.read_bytes().decode().split("\n")
    assert sum("the node is on fire" in line for line in lines) > len(EVIL), "they are logged"
    if node.settings[FORM] == "json":
        members = [json.loads(line) for line in lines if line]
        assert {"time", "level", "logger", "message"} <= set.intersection(*map(set, members))
        assert not [one for one in members if one["time"].startswith("1999")]
    assert not [line for line in lines if line.startswith(("1999", '{"time": "1999'))]
    assert not [line for line in lines if any(c in line for c in "\x1b\r\x85\u2028\u2029\x0b\x0c")]


def alter(node: SecuredNode, setting: str, value: str, operation: int = SET) -> list[int]:
    config = AlterableConfig(name=setting, config_operation=operation, value=value)
    resource = AlterConfigsResource(
        resource_type=NODE_RESOURCE, resource_name="1", configs=[config]
    )
    with admin(node) as root:
        answer = root.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    return codes(answer)


def test_names_of_clients_make_no_metrics(locked: SecuredNode) -> None:
    """Many client ids, versions, names of software, users, topics and groups that are not
    there: the number of samples stays what it was, and no name is in it.
    """
    flood(locked, 0, 3)
    before = samples(locked)
    flood(locked, 3, MANY)
    assert samples(locked) - before < SAMPLES_MORE_MAX
    _, text = locked.http_get("/metrics")
    assert "flood-" not in text


def samples(node: SecuredNode) -> int:
    """But for those of internal topics, whose logs are opened one by one."""
    labels = [labels for _, labels, _ in node.metrics()]
    return sum(not one.get("topic", "").startswith("__") for one in labels)


def flood(node: SecuredNode, first: int, last: int) -> None:
    with login(node) as user, admin(node) as root:
        for number in range(first, last):
            name = f"flood-{number}"
            for client in (user, root):
                client.client_id = name
                for request, version in requests(name):
                    if not isinstance(request, CreateTopicsRequest):
                        with contextlib.suppress(Closed):
                            client.call(request, version)
    for number in range(first, last):
        failed_login(node, "PLAIN", f"\0flood-{number}\0wrong".encode())
        with contextlib.suppress(Closed), raw(node) as client:
            handshake(client, f"flood-{number}")
        with RawClient(node.host, node.port) as client:  # an API that is not there
            client.send_frame(client.header(ApiKey.METADATA, 12)[2:].rjust(12, b"\x7f"))
            with contextlib.suppress(Closed):
                client.receive_frame()


# -- names of classes ------------------------------------------------------------------------------

JNDI = "com.sun.security.auth.module.JndiLoginModule"
URL = '"ldap://127.0.0.1:1/x"'
CLASSES = {
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f"{JNDI} required user.provider.url={URL} group.provider.url={URL};"
    ),
    "sasl.login.class": JNDI,
    "sasl.login.callback.handler.class": JNDI,
    "sasl.client.callback.handler.class": JNDI,
    "listener.name.sasl_plaintext.plain.sasl.server.callback.handler.class": JNDI,
    "principal.builder.class": JNDI,
    "ssl.engine.factory.class": JNDI,
    "security.providers": JNDI,
    "authorizer.class.name": JNDI,
}


@pytest.mark.parametrize("setting", CLASSES)
def test_a_class_is_not_loaded(locked: SecuredNode, tmp_path: Path, setting: str) -> None:
    """CVE-2023-25194, CVE-2025-27818: a node that is told to does not start, and one that runs
    takes no such setting.
    """
    node = SecuredNode(tmp_path / "node", {**LOCKED})
    node.settings[setting] = CLASSES[setting]
    done = subprocess.run(node.command(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (1, 2), done
    assert setting in done.stderr
    assert "Traceback" not in done.stderr
    assert "ldap:" not in done.stderr
    if setting.endswith("jaas.config"):  # what it says is read by each node for itself
        assert alter(locked, setting, CLASSES[setting]) == []
        said = f"are not taken: {setting} cannot be read: it does not name the login module Plain"
        eventually(lambda: said in locked.log_path.read_text())
        with login(locked) as user:
            assert user.call(MetadataRequest(topics=[]), 12).brokers
        assert alter(locked, setting, "", operation=DELETE) == []
    else:
        assert alter(locked, setting, CLASSES[setting]) != []


@pytest.mark.parametrize("module", [JNDI, "org.apache.kafka.JndiLoginModule", "Krb5LoginModule"])
def test_our_client_loads_no_class(module: str, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "bootstrap.servers=127.0.0.1:1\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required user.provider.url={URL} password="secret-of-it";\n'
    )
    command = [sys.executable, "-m", "penstock.cli", "topic", "list", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done
    assert "sasl.jaas.config" in done.stderr
    assert "secret-of-it" not in done.stderr
