"""`penstock user` on a node: who was made logs in, by the new password and not by the old one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from support.secured_node import SecuredNode
from support.waiting import CALL_SECONDS_MAX, eventually

from .conftest import Run, run_with

pytestmark = [pytest.mark.penstock_only, pytest.mark.xdist_group("security")]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with SecuredNode(tmp_path_factory.mktemp("users") / "node") as made:
        yield made


@pytest.fixture
def run(node: SecuredNode) -> Run:
    def run(*args: str, **more: str) -> object:
        stdin = more.pop("stdin", "")
        return run_with({"PENSTOCK_BOOTSTRAP": node.bootstrap, **more}, *args, stdin=stdin)

    return run


def gets_in(node: SecuredNode, name: str, password: str, mechanism: str) -> bool:
    way = node.way("SASL_PLAINTEXT", mechanism)
    settings = {**way, "sasl.username": name, "sasl.password": password, "log_level": 0}
    admin = AdminClient(settings)
    try:
        admin.describe_cluster(request_timeout=2).result(CALL_SECONDS_MAX)
    except KafkaException:
        return False
    return True


def test_the_life_of_a_user(node: SecuredNode, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("first\n")
    made = run("user", "create", "una", "--password-file", str(file), "--format", "json").json()
    assert made == {"created": "una", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]}
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"):
        eventually(lambda m=mechanism: gets_in(node, "una", "first", m))
    assert "already" in run("user", "create", "una", "--password-file", str(file)).sentence

    listed = run("user", "list", "--format", "json").json()
    assert {"name": "una", "mechanisms": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192}} in listed
    assert "una" in run("user", "list").out

    done = run("user", "passwd", "una", PENSTOCK_USER_PASSWORD="second")
    assert done.code == 0, done
    eventually(lambda: gets_in(node, "una", "second", "SCRAM-SHA-512"))
    assert not gets_in(node, "una", "first", "SCRAM-SHA-512")

    assert "--yes" in run("user", "delete", "una").sentence
    assert run("user", "delete", "una", "--yes", "--format", "json").json() == {"deleted": ["una"]}
    eventually(lambda: not gets_in(node, "una", "second", "SCRAM-SHA-512"))
    assert "no user una" in run("user", "delete", "una", "--yes").sentence
    assert "no user una" in run("user", "passwd", "una", PENSTOCK_USER_PASSWORD="x").sentence


def test_a_password_comes_from_stdin_or_nowhere(node: SecuredNode, run: Run) -> None:
    only = ("--mechanism", "scram-sha-256", "--iterations", "4096")
    done = run("user", "create", "ute", "--password-file", "-", *only, stdin="of ute\n")
    assert done.code == 0, done
    eventually(lambda: gets_in(node, "ute", "of ute", "SCRAM-SHA-256"))
    assert not gets_in(node, "ute", "of ute", "SCRAM-SHA-512")
    refused = run("user", "create", "uri")
    assert (refused.code, "--password-file" in refused.sentence) == (2, True)
    assert "characters" in run("user", "create", "uri", PENSTOCK_USER_PASSWORD="").sentence
