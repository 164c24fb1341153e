"""`penstock role` and `penstock token` on a node with ACLs: members may, others may not; tokens are
made, shown without their secrets, renewed and ended.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.config.broker_security import STANDARD_AUTHORIZER
from support.secured import PLAIN_PASSWORD, PLAIN_USER
from support.secured_node import SecuredNode
from support.waiting import eventually

from .conftest import Ended, Run, run_with

pytestmark = [pytest.mark.penstock_only, pytest.mark.xdist_group("security")]

SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "a key",
}
MEMBER = f"User:{PLAIN_USER}"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with SecuredNode(tmp_path_factory.mktemp("roles") / "node", SETTINGS) as made:
        yield made


@pytest.fixture
def run(node: SecuredNode) -> Run:
    """As a super user."""
    return lambda *args: run_with({"PENSTOCK_BOOTSTRAP": node.bootstrap}, *args)


@pytest.fixture
def run_as_user(node: SecuredNode) -> Run:
    environment = {
        "PENSTOCK_BOOTSTRAP": node.at("SASL_PLAINTEXT"),
        "PENSTOCK_X_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "PENSTOCK_X_SASL_MECHANISM": "PLAIN",
        "PENSTOCK_X_SASL_USERNAME": PLAIN_USER,
        "PENSTOCK_X_SASL_PASSWORD": PLAIN_PASSWORD,
    }
    return lambda *args, **more: run_with(environment, *args, **more)


def test_the_life_of_a_role(node: SecuredNode, run: Run, run_as_user: Run) -> None:
    def may_create(topic: str) -> Ended:
        ended: Ended = run_as_user("topic", "create", topic)
        return ended

    made = run("role", "create", "payments", "--member", "User:ann", "--format", "json").json()
    assert made == {"done": "created", "role": "payments", "members": ["User:ann"]}
    assert "DUPLICATE_RESOURCE" in run("role", "create", "payments").sentence
    rights = ("--preset", "developer", "--prefix", "payments-")
    assert run("acl", "create", "--role", "payments", *rights).code == 0
    assert may_create("payments-1").code == 1
    assert run("role", "add-member", "payments", MEMBER).code == 0
    eventually(lambda: may_create("payments-1").code == 0)
    assert may_create("other").code == 1

    listed = [{"name": "payments", "members": ["User:ann", MEMBER]}]
    assert run("role", "list", "--format", "json").json() == listed
    [described] = run("role", "describe", "payments", "--format", "json").json()
    assert described["members"] == ["User:ann", MEMBER]
    assert {acl["principal"] for acl in described["acls"]} == {"Role:payments"}
    assert MEMBER in run("role", "describe", "payments").out
    assert "CLUSTER_AUTHORIZATION_FAILED" in run_as_user("role", "list").sentence
    grab = run_as_user("role", "add-member", "payments", "User:other").sentence
    assert "ALTER on the cluster" in grab

    node.stop()
    node.start()
    assert may_create("payments-2").code == 0
    assert run("role", "remove-member", "payments", MEMBER).code == 0
    eventually(lambda: may_create("payments-3").code == 1)
    assert "--yes" in run("role", "delete", "payments").sentence
    assert run("role", "delete", "payments", "--yes").code == 0
    assert run("role", "list", "--format", "json").json() == []
    assert run("acl", "list", "--role", "payments", "--format", "json").json() == []
    assert "no role payments" in run("role", "describe", "payments").sentence


def test_the_life_of_a_token(run: Run, run_as_user: Run) -> None:
    own = ("--renewer", "User:ray", "--lifetime", "3600", "--format", "json")
    made = run_as_user("token", "create", *own).json()
    assert made["owner"] == MEMBER
    listed = run_as_user("token", "list", "--format", "json").json()
    assert [(one["id"], one["owner"], one["renewers"]) for one in listed] == [
        (made["id"], MEMBER, ["User:ray"])
    ]
    assert made["id"] in run_as_user("token", "list", "--owner", MEMBER).out
    assert made["secret"] not in run_as_user("token", "list").out
    assert run_as_user("token", "list", "--owner", "User:ann", "--format", "json").json() == []
    renewed = run_as_user("token", "renew", made["id"], "--for", "60", "--format", "json").json()
    assert renewed["expires"] < made["expires"]
    assert "not by a token" in run("token", "list").sentence  # nobody has logged in there
    other = run_as_user("token", "create", "--owner", "User:ann").sentence
    assert "CREATE_TOKENS" in other
    assert run_as_user("token", "expire", made["id"]).code == 0
    eventually(lambda: run_as_user("token", "list", "--format", "json").json() == [])
    assert "no token" in run_as_user("token", "expire", made["id"]).sentence
