"""`penstock dev --secure`: a locked cluster in a minute, for confluent-kafka and our commands."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported there without saying so
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from support.process import free_ports
from support.waiting import CALL_SECONDS_MAX, eventually

from .conftest import COMMAND_SECONDS_MAX, PENSTOCK, run_with
from .dev_cluster import Dev, running

pytestmark = pytest.mark.penstock_only
ANN_PASSWORD = "pencil-of-ann"
REFUSED_S = 3
PAGE = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")


def client_settings(file: Path) -> dict[str, str]:
    """The lines of the file, as a script would read them."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def round_trip(settings: dict[str, str], topic: str) -> None:
    """A message that goes there and back."""
    producer = Producer(settings)
    producer.produce(topic, b"hello")
    assert producer.flush(CALL_SECONDS_MAX) == 0
    group = {"group.id": f"of-{topic}", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | group)
    consumer.subscribe([topic])
    try:
        got: list[bytes | None] = []

        def arrived() -> bool:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                got.append(message.value())
            return bool(got)

        eventually(arrived, CALL_SECONDS_MAX)
        assert got == [b"hello"]
    finally:
        consumer.close()


def add_user(settings: dict[str, str], name: str, password: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    wanted = UserScramCredentialUpsertion(name, info, password.encode())
    admin = AdminClient(settings)
    for future in admin.alter_user_scram_credentials([wanted]).values():
        future.result(CALL_SECONDS_MAX)


def kept_files(root: Path) -> dict[str, str]:
    """What a second start must not change."""
    files = [*(root / "security").iterdir(), *root.glob("node-*/penstock.toml")]
    return {str(file): file.read_text() for file in files}


def passwords(root: Path) -> list[str]:
    return re.findall(
        r'(?:password|user_\w+)=\\"([^"\\]+)', (root / "node-1/penstock.toml").read_text()
    )


def check_secrecy(dev: Dev) -> None:
    """Nobody else can read the files; no secret is an argument, or in a log."""
    private = [*dev.root.glob("security/*"), *dev.root.glob("node-*/penstock.toml")]
    assert len(private) == 3 + 3 + 3
    assert {stat.S_IMODE(file.stat().st_mode) for file in private} == {0o600}
    folders = [dev.root / "security", *(dev.folder(i) for i in (1, 2, 3))]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}
    told = dev.out() + dev.err()
    told += "".join(log.read_text() for log in dev.root.glob("node-*/penstock.log"))
    pids = [dev.process.pid, *(dev.pid(i) for i in (1, 2, 3))]
    told += "".join(Path(f"/proc/{pid}/cmdline").read_text() for pid in pids)
    secrets = passwords(dev.root)
    assert len(set(secrets)) == 2, "one of the nodes, one of the administrator"
    assert not [secret for secret in secrets if secret in told]


def test_a_locked_cluster_is_used_by_the_file_that_it_names(tmp_path: Path) -> None:
    port = free_ports(3)
    root = tmp_path / "penstock-dev"
    with running(root, "--nodes", "3", "--secure", "--base-port", str(port)) as dev:
        addresses = dev.wait_ready()
        assert addresses == [f"127.0.0.1:{port + i}" for i in range(3)]
        assert dev.out() == f"ready: bootstrap={','.join(addresses)} config={dev.config}\n"
        config = Path(dev.config)
        assert config == root / "security" / "admin.properties"
        admin = client_settings(config)
        assert admin["bootstrap.servers"] == ",".join(addresses)
        check_secrecy(dev)
        for args in (("topic", "create", "t", "-p", "3"), ("cluster", "status"), ("doctor",)):
            done = run_with({}, *args, "--config", dev.config)
            assert done.code == 0, done
        round_trip(admin, "t")
        add_user(admin, "ann", ANN_PASSWORD)
        check_profiles(tmp_path, admin["sasl.password"])
        check_refused(admin, addresses)
        before = kept_files(root)
        assert dev.stop() == 0
    with running(root) as dev:
        assert dev.wait_ready() == addresses
        assert Path(dev.config) == config
        assert kept_files(root) == before
        assert run_with({}, "topic", "consume", "t", "--config", dev.config).out == "hello\n"
        ann = admin | {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "ann"}
        check_ann(AdminClient(ann | {"sasl.password": ANN_PASSWORD}), AdminClient(admin))
        assert dev.stop() == 0


def check_ann(ann: AdminClient, admin: AdminClient) -> None:
    """Who has no rights may log in and sees nothing; an ACL is a right."""
    assert len(ann.list_topics(timeout=CALL_SECONDS_MAX).brokers) == 3
    assert "t" not in ann.list_topics(timeout=CALL_SECONDS_MAX).topics
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    describe = AclOperation.DESCRIBE
    acl = AclBinding(ResourceType.TOPIC, "t", literal, "User:ann", "*", describe, allow)
    for future in admin.create_acls([acl]).values():
        future.result(CALL_SECONDS_MAX)
    eventually(lambda: "t" in ann.list_topics(timeout=CALL_SECONDS_MAX).topics)


def check_profiles(folder: Path, secret: str) -> None:
    """The example of docs/cli.md, and every kind of command by the profile that it makes."""
    section = PAGE.partition("## profile\n")[2].partition("\n## ")[0]
    [program] = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    environment = {"XDG_CONFIG_HOME": str(folder / "config")}
    done = subprocess.run(
        ["bash", "-c", f'set -e\npenstock() {{ {" ".join(PENSTOCK)} "$@"; }}\n{program}'],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=4 * COMMAND_SECONDS_MAX,
        check=False,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done
    assert len(re.findall(r"^t ", done.stdout, re.MULTILINE)) == 2, "the topic, listed twice"
    shown = run_with(environment, "profile", "show")
    assert "(hidden)" in shown.out
    assert secret not in done.stdout + done.stderr + shown.out
    bench = ("bench", "produce", "--client", "raw", "--seconds", "0.3", "--json")
    assert run_with(environment, *bench).json()["messages_per_s"] > 0
    assert run_with(environment, "profile", "use", "--none").code == 0
    assert run_with(environment | {"PENSTOCK_PROFILE": "dev"}, "group", "list").code == 0
    assert "no profile of-nobody" in run_with(environment, "doctor", "--profile", "of-nobody").err


def check_refused(admin: dict[str, str], addresses: list[str]) -> None:
    """Who has no credentials, wrong ones, or does not trust the authority gets nothing."""
    ca = {"ssl.ca.location": admin["ssl.ca.location"]}
    for settings in (
        {"bootstrap.servers": addresses[0]},
        {"bootstrap.servers": addresses[0], "security.protocol": "SSL"} | ca,
        admin | {"sasl.password": "wrong"},
        {name: value for name, value in admin.items() if name not in ca},
    ):
        with pytest.raises(KafkaException):
            AdminClient(settings | {"log_level": "0"}).list_topics(timeout=REFUSED_S)
    assert run_with({}, "topic", "list", "-b", addresses[0]).code == 1


def test_a_secure_cluster_grows(tmp_path: Path) -> None:
    port = free_ports(3)
    root = tmp_path / "dev"
    with running(root, "--nodes", "1", "--secure", "--base-port", str(port)) as dev:
        dev.wait_ready()
        assert dev.stop() == 0
    before = kept_files(root)
    with running(root, "--nodes", "3") as dev:
        addresses = dev.wait_ready()
        assert client_settings(Path(dev.config))["bootstrap.servers"] == ",".join(addresses)
        nodes = run_with({}, "cluster", "nodes", "--config", dev.config, "--format", "json").json()
        assert [node["node"] for node in nodes] == [1, 2, 3]
        kept = [name for name in before if name.endswith((".pem", ".key"))]
        assert {name: kept_files(root)[name] for name in kept} == {n: before[n] for n in kept}
        assert dev.stop() == 0


def test_a_cluster_that_was_made_open_is_not_locked_later(tmp_path: Path) -> None:
    port = free_ports(1)
    with running(tmp_path, "--nodes", "1", "--base-port", str(port)) as dev:
        dev.wait_ready()
        assert dev.config == ""
        assert dev.stop() == 0
    with running(tmp_path, "--secure") as dev:
        assert dev.process.wait(CALL_SECONDS_MAX) == 2
        assert "was made without --secure: choose another --data-dir" in dev.err()
    assert not (tmp_path / "security").exists()
