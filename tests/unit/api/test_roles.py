"""Roles through the real dispatcher: made, filled, described, deleted; by whom; after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.auth.principal import Principal
from penstock.auth.types import Operation
from penstock.base.errors import ErrorCode
from penstock.config.broker_security import STANDARD_AUTHORIZER
from penstock.wire.messages.alter_role import AlterRoleRequest, RoleAction
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.wire.messages.describe_roles import DescribeRolesRequest
from unit.api.test_rights_of_every_api import ROOT, as_principal, secured
from unit.net.served import run
from unit.serving.cluster_rig import nodes
from unit.serving.rig import Peer, Rig, until

ANN, BOB = (Principal("User", name, "127.0.0.1") for name in ("ann", "bob"))
BY_CLAIM = Principal("User", "cat", "127.0.0.1", roles=frozenset({"writers"}))
TOPIC, WRITE, ALLOW = 2, 4, 3
RULE = AclCreation(
    resource_type=TOPIC,
    resource_name="t",
    principal="Role:writers",
    host="*",
    operation=WRITE,
    permission_type=ALLOW,
)


async def alter(peer: Peer, action: int, *members: str, name: str = "writers") -> Any:
    request = AlterRoleRequest(name=name, action=action, members=list(members))
    return await peer.call(request, 0)


async def roles(rig: Rig, names: list[str] | None = None) -> dict[str, list[str]]:
    peer = await as_principal(rig, ROOT)
    answer = await peer.call(DescribeRolesRequest(names=names), 0)
    assert answer.error_code == 0
    return {role.name: role.members for role in answer.roles}


async def writes(rig: Rig, topic: Any, principal: Principal) -> bool:
    code = (await (await as_principal(rig, principal)).produce(topic)).error_code
    assert code in (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return bool(code == 0)


def test_members_may_and_others_may_not_also_after_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path) as rig:
            topic = await rig.topic("t")
            root = await as_principal(rig, ROOT)
            assert (await alter(root, RoleAction.CREATE, "User:ann")).error_code == 0
            await root.call(CreateAclsRequest(creations=[RULE]), 3)
            assert await writes(rig, topic, ANN)
            assert await writes(rig, topic, BY_CLAIM)
            assert not await writes(rig, topic, BOB)
            assert (await alter(root, RoleAction.ADD_MEMBERS, "User:bob")).error_code == 0
            assert await writes(rig, topic, BOB)
            assert (await alter(root, RoleAction.REMOVE_MEMBERS, "User:ann")).error_code == 0
            assert not await writes(rig, topic, ANN)
            assert await roles(rig) == {"writers": ["User:bob"]}
        async with secured(tmp_path) as rig:
            await until(lambda: rig.broker.rights.is_loaded)
            assert await writes(rig, topic, BOB)
            assert not await writes(rig, topic, ANN)
            root = await as_principal(rig, ROOT)
            assert (await alter(root, RoleAction.DELETE)).error_code == 0
            assert not await writes(rig, topic, BOB)
            assert await roles(rig) == {}

    run(test)


def test_roles_are_described_by_name(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path) as rig:
            root = await as_principal(rig, ROOT)
            for name in ("b", "a"):
                await alter(root, RoleAction.CREATE, "User:x", "User:w", name=name)
            assert await roles(rig) == {"a": ["User:w", "User:x"], "b": ["User:w", "User:x"]}
            assert await roles(rig, ["b", "c"]) == {"b": ["User:w", "User:x"]}
            assert await roles(rig, []) == {}

    run(test)


@pytest.mark.parametrize(
    ("action", "name", "member", "code"),
    [
        (RoleAction.CREATE, "there", "User:a", ErrorCode.DUPLICATE_RESOURCE),
        (RoleAction.CREATE, "", "User:a", ErrorCode.INVALID_REQUEST),
        (RoleAction.DELETE, "gone", "User:a", ErrorCode.RESOURCE_NOT_FOUND),
        (RoleAction.ADD_MEMBERS, "gone", "User:a", ErrorCode.RESOURCE_NOT_FOUND),
        (RoleAction.ADD_MEMBERS, "there", "ann", ErrorCode.INVALID_REQUEST),
        (RoleAction.ADD_MEMBERS, "there", "Role:other", ErrorCode.INVALID_REQUEST),
        (RoleAction.REMOVE_MEMBERS, "gone", "User:a", ErrorCode.RESOURCE_NOT_FOUND),
        (9, "there", "User:a", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_refused(
    tmp_path: Path, action: int, name: str, member: str, code: ErrorCode
) -> None:
    async def test() -> None:
        async with secured(tmp_path) as rig:
            root = await as_principal(rig, ROOT)
            await alter(root, RoleAction.CREATE, name="there")
            refused = await alter(root, action, member, name=name)
            assert refused.error_code == code
            assert refused.error_message
            assert await roles(rig) == {"there": []}

    run(test)


def test_a_role_that_is_made_through_one_node_counts_on_all(tmp_path: Path) -> None:
    async def test() -> None:
        secure = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:ANONYMOUS"}
        async with nodes(tmp_path, **secure) as cluster:
            peer = await cluster.peer(cluster.others[0])
            made = await peer.send(AlterRoleRequest(name="writers", members=[ANN.text]), 0)
            assert made.error_code == 0
            await peer.send(CreateAclsRequest(creations=[RULE]), 3)
            for node_id in cluster.running:
                rights = cluster.broker(node_id).rights
                await until(lambda r=rights: r.topic(ANN, Operation.WRITE, "t"))
                assert not rights.topic(BOB, Operation.WRITE, "t")

    run(test)
