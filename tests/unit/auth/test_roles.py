"""What a ready role may do, asked of an authorizer that has its ACLs."""

from __future__ import annotations

import pytest

from penstock.auth.acl_rules import acl_fault
from penstock.auth.authorizer import Authorizer
from penstock.auth.principal import Principal
from penstock.auth.roles import PRESETS, preset
from penstock.auth.types import CLUSTER_NAME, Acl, Operation, PermissionType, ResourceType

MEMBER = Principal("User", "member", "10.0.0.1", roles=frozenset({"team"}))


def may(acls: tuple[Acl, ...], kind: ResourceType, name: str) -> set[str]:
    authorizer = Authorizer(frozenset())
    authorizer.load((bytes([place + 1]) * 16, acl) for place, acl in enumerate(acls))
    assert not authorizer.authorized_operations(Principal("User", "other"), kind, name)
    bits = authorizer.authorized_operations(MEMBER, kind, name)
    return {operation.name for operation in Operation if bits >> operation & 1}


def on_cluster(kind: str) -> set[str]:
    return may(preset(kind, "team"), ResourceType.CLUSTER, CLUSTER_NAME)


SEEN = {"DESCRIBE", "DESCRIBE_CONFIGS"}
MESSAGES = {"READ", "WRITE"}
CHANGED = {"CREATE", "ALTER", "DELETE", "ALTER_CONFIGS"}


def test_a_viewer_sees_and_changes_nothing() -> None:
    acls = preset("viewer", "team")
    assert may(acls, ResourceType.TOPIC, "any") == SEEN
    assert may(acls, ResourceType.GROUP, "any") == SEEN
    assert may(acls, ResourceType.TRANSACTIONAL_ID, "any") == {"DESCRIBE"}
    assert on_cluster("viewer") == SEEN


def test_a_developer_has_what_begins_with_the_prefix() -> None:
    acls = preset("developer", "team", "shop.")
    assert may(acls, ResourceType.TOPIC, "shop.orders") == SEEN | MESSAGES | CHANGED
    assert may(acls, ResourceType.GROUP, "shop.app") == SEEN | {"READ", "DELETE", "ALTER_CONFIGS"}
    assert may(acls, ResourceType.TRANSACTIONAL_ID, "shop.1") == {"DESCRIBE", "WRITE"}
    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
        assert may(acls, kind, "shop") == set()
    assert may(acls, ResourceType.CLUSTER, CLUSTER_NAME) == set()


def test_an_operator_changes_and_reads_no_messages_and_gives_no_rights() -> None:
    acls = preset("operator", "team")
    assert may(acls, ResourceType.TOPIC, "any") == SEEN | CHANGED
    assert may(acls, ResourceType.GROUP, "any") == SEEN | {"DELETE", "ALTER_CONFIGS"}
    assert on_cluster("operator") == SEEN | {"CREATE", "ALTER_CONFIGS"}


def test_an_admin_may_do_everything() -> None:
    root = Authorizer(frozenset({MEMBER.text}))
    for kind in ResourceType:
        if kind > ResourceType.ANY:
            name = CLUSTER_NAME if kind is ResourceType.CLUSTER else "any"
            bits = root.authorized_operations(MEMBER, kind, name)
            wanted = {operation.name for operation in Operation if bits >> operation & 1}
            assert may(preset("admin", "team"), kind, name) == wanted


def test_what_a_preset_makes_can_be_created() -> None:
    for kind in PRESETS:
        acls = preset(kind, "team", "p" if kind == "developer" else "")
        assert len(set(acls)) == len(acls) > 0
        for acl in acls:
            assert acl_fault(acl) is None
            assert (acl.principal, acl.permission) == ("Role:team", PermissionType.ALLOW)


@pytest.mark.parametrize(
    ("kind", "role", "prefix", "sentence"),
    [
        ("developer", "team", "", "needs the prefix"),
        ("viewer", "team", "p", "only a developer"),
        ("owner", "team", "", "no preset is called 'owner'"),
        ("admin", "", "", "needs a name"),
    ],
)
def test_bad_calls_are_refused(kind: str, role: str, prefix: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        preset(kind, role, prefix)
