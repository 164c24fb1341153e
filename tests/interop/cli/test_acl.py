"""`penstock acl` on Apache Kafka with its StandardAuthorizer, and on a node: the ACLs that it makes
decide there, and what `check` says is what a user meets.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.config.broker_security import STANDARD_AUTHORIZER
from support.node import NodeProcess
from support.process import BrokerProcess
from support.reference import KafkaProcess
from support.secured import PLAIN_PASSWORD, PLAIN_USER, SecuredKafka, cannot_run
from support.secured_node import SecuredNode
from support.transactions import newest_features
from support.waiting import eventually

from .conftest import Ended, Run, run_with

WRITER = f"User:{PLAIN_USER}"
SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
LOGIN = {
    "PENSTOCK_X_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
    "PENSTOCK_X_SASL_MECHANISM": "PLAIN",
    "PENSTOCK_X_SASL_USERNAME": PLAIN_USER,
    "PENSTOCK_X_SASL_PASSWORD": PLAIN_PASSWORD,
}
KINDS = [
    pytest.param("kafka", marks=[pytest.mark.java, pytest.mark.xdist_group("acl-kafka")]),
    pytest.param("node", marks=[pytest.mark.penstock_only, pytest.mark.xdist_group("acl-node")]),
]
PAGE = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
_numbers = itertools.count()


@pytest.fixture(scope="module", params=KINDS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredKafka | SecuredNode]:
    """With ACLs; who comes by the plain listener is a super user."""
    if why := cannot_run():
        pytest.skip(why)
    kind = SecuredKafka if request.param == "kafka" else SecuredNode
    broker = kind(tmp_path_factory.mktemp("acl") / request.param)
    broker.settings |= SETTINGS
    with broker:
        newest_features(broker)
        yield broker


@pytest.fixture
def run(broker: BrokerProcess, run_at: Run) -> Iterator[Run]:
    """As a super user; the ACLs of the test are gone after it."""

    def run(*args: str, stdin: str = "") -> Ended:
        return run_at(broker.bootstrap, *args, stdin=stdin)

    yield run
    everybody = ("--principal", WRITER, "--principal", "User:ann", "--role", "dev")
    assert run("acl", "delete", *everybody, "--yes").code == 0


@pytest.fixture
def run_as_writer(broker: SecuredKafka | SecuredNode) -> Run:
    variables = {"PENSTOCK_BOOTSTRAP": broker.at("SASL_PLAINTEXT"), **LOGIN}
    return lambda *args, **named: run_with(variables, *args, **named)


@pytest.fixture
def name() -> str:
    """Of resources of this test alone, and a beginning of no others."""
    return f"acl-{next(_numbers)}-"


def rows(run: Run, *args: str) -> set[tuple[str, ...]]:
    found: list[dict[str, str]] = run("acl", "list", *args, "--format", "json").json()
    return {tuple(acl.values()) for acl in found}


def row(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def test_create_list_delete(run: Run, name: str) -> None:
    allow = ("acl", "create", "--principal", "User:ann", "--allow", "--prefixed", "--topic", name)
    dry = run(*allow, "--operation", "read", "--dry-run", "--format", "json").json()
    assert dry["dry_run"]
    assert len(dry["created"]) == 1
    assert rows(run, "--principal", "User:ann") == set()

    done = run(*allow, "--operation", "read,describe-configs")
    assert done.out.splitlines()[0] == "created 2 ACLs"
    read = row(f"User:ann ALLOW READ TOPIC {name} PREFIXED *")
    configs = row(f"User:ann ALLOW DESCRIBE_CONFIGS TOPIC {name} PREFIXED *")
    eventually(lambda: rows(run, "--principal", "User:ann") == {read, configs})

    again = run(*allow, "--operation", "read,write", "--format", "json").json()
    assert [acl["operation"] for acl in again["created"]] == ["WRITE"]
    assert [acl["operation"] for acl in again["existing"]] == ["READ"]
    write = row(f"User:ann ALLOW WRITE TOPIC {name} PREFIXED *")
    eventually(lambda: write in rows(run))

    assert rows(run, "--topic", name) == set()
    assert rows(run, "--topic", name, "--prefixed", "--operation", "read,write") == {read, write}
    assert rows(run, "--topic", f"{name}eu", "--match") == {read, configs, write}
    assert rows(run, "--principal", "User:ann", "--deny") == set()

    selected = ("--principal", "User:ann", "--operation", "write")
    refused = run("acl", "delete", *selected)
    assert (refused.code, refused.sentence.split(":")[0]) == (2, "deleting ACLs needs a yes")
    gone = run("acl", "delete", *selected, "--yes").out.splitlines()
    assert gone[-1] == "deleted 1 ACL"
    assert gone[1].split() == list(write)
    eventually(lambda: rows(run, "--principal", "User:ann") == {read, configs})
    assert run("acl", "delete", *selected, "--yes").out == "there is no such ACL\n"


def test_a_host_and_every_kind_of_resource(run: Run, name: str) -> None:
    resources = ("--group", name, "--cluster", "--transactional-id", name)
    tokens = ("--delegation-token", name)
    who = ("--principal", "User:ann")
    created = run(
        "acl", "create", *who, "--deny", "--operation", "describe", *resources, *tokens,
        "--host", "127.0.0.9",
    )  # fmt: skip
    assert created.code == 0, created
    wanted = {
        row(f"User:ann DENY DESCRIBE {resource} LITERAL 127.0.0.9")
        for resource in (
            f"GROUP {name}",
            "CLUSTER kafka-cluster",
            f"TRANSACTIONAL_ID {name}",
            f"DELEGATION_TOKEN {name}",
        )
    }
    eventually(lambda: rows(run, *who) == wanted)
    assert rows(run, "--cluster", "--host", "127.0.0.9") == {
        row("User:ann DENY DESCRIBE CLUSTER kafka-cluster LITERAL 127.0.0.9")
    }
    users = ("--allow", "--operation", "describe-tokens", "--user", "User:bob")
    assert run("acl", "create", *who, *users).code == 0
    told = row("User:ann ALLOW DESCRIBE_TOKENS USER User:bob LITERAL *")
    eventually(lambda: rows(run, "--user", "User:bob") == {told})


def test_a_preset_for_a_role(run: Run, name: str) -> None:
    preset = ("acl", "create", "--role", "dev", "--preset", "developer", "--prefix", name)
    assert run(*preset).out.splitlines()[0] == "created 4 ACLs"
    eventually(lambda: len(rows(run, "--role", "dev")) == 4)
    assert run(*preset).out.splitlines()[0] == "there already: 4 ACLs"
    asked = ("acl", "check", "--principal", "User:ann", "--operation", "delete", "--topic")
    assert run(*asked, f"{name}x").code == 1
    allowed = run(*asked, f"{name}x", "--role", "dev")
    assert allowed.code == 0
    assert f"ALLOW ALL on every topic that begins with {name} for Role:dev" in allowed.out


def met(run_as_writer: Run, topic: str) -> dict[str, bool]:
    """What the user meets."""
    written = run_as_writer("topic", "produce", topic, stdin="hello\n")
    read = run_as_writer("topic", "consume", topic, "--count", "1")
    assert {written.code, read.code} <= {0, 1}, (written, read)
    return {"write": written.code == 0, "read": read.code == 0}


def checked(run: Run, operation: str, topic: str, *more: str) -> Any:
    """What `check` says of the same."""
    asked = ("--principal", WRITER, "--operation", operation, "--topic", topic, *more)
    ended = run("acl", "check", *asked, "--format", "json")
    found = json.loads(ended.out)
    assert ended.code == (0 if found["allowed"] else 1)
    return found


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], {"write": None, "read": None}),
        (["--allow all"], {"write": "ALLOW ALL", "read": "ALLOW ALL"}),
        (["--allow all", "--deny write"], {"write": "DENY WRITE", "read": "ALLOW ALL"}),
        (["--allow write"], {"write": "ALLOW WRITE", "read": None}),
    ],
)
def test_check_says_what_a_user_meets(
    broker: BrokerProcess,
    run: Run,
    run_as_writer: Run,
    name: str,
    acls: list[str],
    expected: dict[str, str | None],
) -> None:
    topic = f"{name}t"
    assert run("topic", "create", topic, "-p", "1").code == 0
    assert run("topic", "produce", topic, stdin="first\n").code == 0
    for acl in acls:
        permission, operation = acl.split()
        options = ("--operation", operation, "--topic", name, "--prefixed")
        assert run("acl", "create", "--principal", WRITER, permission, *options).code == 0
    allowed = {
        operation: rule is not None and rule.startswith("ALLOW")
        for operation, rule in expected.items()
    }
    eventually(lambda: met(run_as_writer, topic) == allowed, every=0.2)
    for operation, rule in expected.items():
        said = checked(run, operation, topic, "--host", "127.0.0.1")
        assert said["allowed"] == allowed[operation]
        acl = said["acl"]
        assert (acl and f"{acl['permission']} {acl['operation']}") == rule
        hidden = isinstance(broker, KafkaProcess) and not said["allowed"]
        assert ["super.users" in doubt for doubt in said["doubts"]] == [True] * hidden


def test_the_examples_of_the_page(run: Run) -> None:
    [block] = re.findall(r"```sh\n(penstock acl .*?)```", PAGE, re.DOTALL)
    for line in block.splitlines():
        words = shlex.split(line)
        eventually(lambda words=words: run(*words[1:]).code == 0, every=0.2)
    assert words[2] == "delete"
    eventually(lambda: rows(run, "--principal", "User:ann", "--role", "payments") == set())


def test_check_from_a_host(run: Run, run_as_writer: Run, name: str) -> None:
    topic = f"{name}t"
    assert run("topic", "create", topic, "-p", "1").code == 0
    who = ("acl", "create", "--principal", WRITER, "--topic", topic)
    assert run(*who, "--allow", "--operation", "all").code == 0
    assert run(*who, "--deny", "--operation", "write", "--host", "127.0.0.1").code == 0
    eventually(lambda: run_as_writer("topic", "produce", topic, stdin="x\n").code == 1, every=0.2)
    assert not checked(run, "write", topic, "--host", "127.0.0.1")["allowed"]
    assert checked(run, "write", topic, "--host", "127.0.0.2")["allowed"]
    without = checked(run, "write", topic)
    assert without["allowed"]
    assert without["doubts"] == ["ACLs for 127.0.0.1 do not count without --host"]


def test_a_super_user_where_brokers_tell(broker: BrokerProcess, run: Run, name: str) -> None:
    asked = ("acl", "check", "--principal", "User:ANONYMOUS", "--operation", "read", "--topic")
    ended = run(*asked, name)
    if isinstance(broker, NodeProcess):
        assert ended.code == 0
        assert "because User:ANONYMOUS is one of the brokers' super.users" in ended.out
    else:
        assert ended.code == 1
        assert f"because no ACL is about topic {name}\n" in ended.out
        assert "if User:ANONYMOUS is one, it is allowed" in ended.err


def test_who_may_not_see_or_change_acls(run_as_writer: Run, name: str) -> None:
    options = ("--principal", "User:ann", "--allow", "--operation", "read", "--topic", name)
    assert run_as_writer("acl", "list").sentence.endswith("that needs DESCRIBE on the cluster")
    assert "DESCRIBE on the cluster" in run_as_writer("acl", "create", *options).sentence


def test_who_may_see_but_not_change_acls(run: Run, run_as_writer: Run, name: str) -> None:
    cluster = ("--principal", WRITER, "--allow", "--operation", "describe", "--cluster")
    assert run("acl", "create", *cluster).code == 0
    eventually(lambda: run_as_writer("acl", "list").code == 0, every=0.2)
    options = ("--principal", "User:ann", "--allow", "--operation", "read", "--topic", name)
    ended = run_as_writer("acl", "create", *options)
    assert ended.sentence.endswith("that needs ALTER on the cluster")
    assert rows(run, "--principal", "User:ann") == set()
    deleted = run_as_writer("acl", "delete", "--principal", WRITER, "--yes")
    assert "that needs ALTER on the cluster" in deleted.sentence
    settings = run_as_writer(
        "acl", "check", "--principal", WRITER, "--operation", "read", "--topic", name
    )
    assert settings.code == 1
    assert "super.users cannot be read" in settings.err
    assert "allow.everyone.if.no.acl.found cannot be read" in settings.err


def test_a_cluster_without_an_authorizer(node: BrokerProcess, run_at: Run) -> None:
    sentence = run_at(node.bootstrap, "acl", "list").sentence
    assert sentence.startswith("cannot list the ACLs: the cluster has no authorizer")
    asked = ("acl", "check", "--principal", "User:ann", "--operation", "read", "--topic", "t")
    ended = run_at(node.bootstrap, *asked)
    assert ended.code == 0
    assert "because the cluster has no authorizer" in ended.out
