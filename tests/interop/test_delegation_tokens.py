"""Delegation tokens with Apache's own tool, the Java client and librdkafka's admin of users: made
by a user, used to log in, renewed, expired; the secret key is nowhere to be seen.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.reference import java_command
from support.secured import jaas
from support.secured_node import SecuredNode, for_java
from support.tools import Tools
from support.waiting import eventually

pytestmark = [
    pytest.mark.penstock_only,
    pytest.mark.java,
    pytest.mark.xdist_group("security"),
]

KEY = "a-key-that-nobody-shows"
USER = "tom", "of-tom"
JAVA_SECONDS_MAX = 120
_ROW = re.compile(r"^(\S{22})\s+(\S{80,})\s+(User:\S+)", re.MULTILINE)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    settings = {"delegation.token.secret.key": KEY}
    with SecuredNode(tmp_path_factory.mktemp("tokens") / "node", settings) as made:
        made.add_user(*USER)
        yield made


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    made = Tools()
    yield made
    made.close()


def login(node: SecuredNode, name: str, password: str) -> dict[str, str]:
    way = node.way("SASL_PLAINTEXT", "SCRAM-SHA-256")
    way |= {"sasl.username": name, "sasl.password": password}
    return for_java(way, Path())


def by_token(node: SecuredNode, token_id: str, password: str) -> dict[str, str]:
    found = login(node, token_id, password)
    config = jaas("scram", token_id, password).rstrip(";")
    return found | {"sasl.jaas.config": f'{config} tokenauth="true";'}


def command(node: SecuredNode, folder: Path, settings: dict[str, str]) -> list[str]:
    file = folder / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    at = node.at("SASL_PLAINTEXT")
    return ["--bootstrap-server", at, "--command-config", str(file)]


def run_client(node: SecuredNode, name: str, settings: dict[str, str]) -> str | None:
    """What kept Java's client out; None if it has made a topic, written and read."""
    program = Path(__file__).parent / "java" / "Secured.java"
    way = {"name": name, "seconds": 0, "settings": settings}
    done = subprocess.run(
        java_command(str(program), "file:///none"),
        input=json.dumps(way) + "\n",
        capture_output=True,
        text=True,
        timeout=JAVA_SECONDS_MAX,
        check=True,
    )
    error: str | None = json.loads(done.stdout)["error"]
    return error


@pytest.mark.timeout(300)
def test_a_token_by_apaches_tool_and_client(
    node: SecuredNode, tools: Tools, tmp_path: Path
) -> None:
    own = command(node, tmp_path, login(node, *USER))
    made = tools.output(
        "delegation-tokens", *own, "--create", "--max-life-time-period", "-1",
        "--renewer-principal", "User:ray",
    )  # fmt: skip
    [(token_id, password, owner)] = _ROW.findall(made)
    assert owner == "User:tom"
    assert run_client(node, "by-token", by_token(node, token_id, password)) is None
    error = run_client(node, "wrong-token", by_token(node, token_id, password[::-1]))
    assert error is not None
    assert error.startswith("SaslAuthenticationException")

    renewed = tools.output(
        "delegation-tokens", *own, "--renew", "--renew-time-period", "-1", "--hmac", password
    )
    assert "Completed renew operation" in renewed
    shown = tools.output("delegation-tokens", *own, "--describe", "--owner-principal", owner)
    assert _ROW.findall(shown) == [(token_id, password, owner)]

    (tmp_path / "token").mkdir()
    with_token = command(node, tmp_path / "token", by_token(node, token_id, password))
    refused = tools.run("delegation-tokens", *with_token, "--create", "--max-life-time-period=-1")
    assert "not allowed" in (refused.out + refused.err)

    tools.output(
        "delegation-tokens", *own, "--expire", "--expiry-time-period", "-1", "--hmac", password
    )
    eventually(lambda: not _ROW.findall(tools.output("delegation-tokens", *own, "--describe")))
    gone = run_client(node, "gone-token", by_token(node, token_id, password))
    assert gone is not None
    assert gone.startswith("SaslAuthenticationException")


@pytest.mark.timeout(120)
def test_the_secret_key_is_not_shown(node: SecuredNode, tools: Tools) -> None:
    shown = tools.output(
        "configs", "--bootstrap-server", node.bootstrap, "--describe", "--all",
        "--entity-type", "brokers", "--entity-name", "1",
    )  # fmt: skip
    assert "delegation.token.secret.key=null sensitive=true" in shown
    assert KEY not in shown
    assert KEY not in node.log_path.read_text()
