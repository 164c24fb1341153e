"""`penstock acl` without a cluster: what its options come to, and what is said of ACLs."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.auth.acls import DEFAULT_ALLOW, DEFAULT_DENY, MATCHING_ACL, SUPER_USER, AclFilter
from penstock.auth.roles import PRESETS, preset
from penstock.auth.types import Acl, Operation, PatternType, PermissionType, ResourceType
from penstock.cli.acl.check import settings_of
from penstock.cli.acl.options import ACL_OPTIONS, RESOURCE_OPTIONS, parse_operations
from penstock.cli.acl.question import BrokerSettings, Question, judge
from penstock.cli.acl.selection import Selection
from penstock.cli.acl.show import acl_text
from penstock.cli.acl.wanted import Wanted
from penstock.cli.errors import EXIT_USAGE, CliError
from penstock.cli.options import OptionGroup
from penstock.config.broker_security import STANDARD_AUTHORIZER
from penstock.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)

TOLD = BrokerSettings(STANDARD_AUTHORIZER, frozenset(), False)
"""Brokers with Kafka's defaults, who tell it."""


def acl(text: str) -> Acl:
    """`ALLOW READ TOPIC orders- PREFIXED User:ann *`."""
    permission, operation, kind, name, pattern, principal, host = text.split()
    return Acl(
        ResourceType[kind],
        name,
        PatternType[pattern],
        principal,
        host,
        Operation[operation],
        PermissionType[permission],
    )


def made(group: type[OptionGroup], /, **given: Any) -> Any:
    """The group from these options, with the defaults of the others."""
    assert given.keys() <= group.OPTIONS.keys()
    defaults = {name: default for name, (_, default) in group.OPTIONS.items()}
    return group.of_options(defaults | given)


def refusal(group: type[OptionGroup], /, **given: Any) -> str:
    with pytest.raises(CliError) as caught:
        made(group, **given)
    assert caught.value.exit_code == EXIT_USAGE
    return caught.value.sentence


def test_every_type_of_resource_has_an_option() -> None:
    assert {name.upper() for name in RESOURCE_OPTIONS} == {
        kind.name for kind in ResourceType if kind > ResourceType.ANY
    }
    assert ACL_OPTIONS.keys() <= Wanted.OPTIONS.keys() & Selection.OPTIONS.keys()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("read", [Operation.READ]),
        ("Read,WRITE", [Operation.READ, Operation.WRITE]),
        ("read, read", [Operation.READ]),
        ("describe-configs", [Operation.DESCRIBE_CONFIGS]),
        ("DescribeConfigs,CLUSTER_ACTION", [Operation.DESCRIBE_CONFIGS, Operation.CLUSTER_ACTION]),
        ("all", [Operation.ALL]),
    ],
)
def test_operations(text: str, wanted: list[Operation]) -> None:
    assert parse_operations([text]) == wanted


@pytest.mark.parametrize("text", ["", "reed", "any", "unknown", "read;write", "read,"])
def test_no_operations(text: str) -> None:
    with pytest.raises(CliError, match=r"is not an operation.*there are all, read, write"):
        parse_operations([text])


# -- create ------------------------------------------------------------------------------------


def test_create_makes_the_product() -> None:
    wanted = made(
        Wanted,
        principals=["User:ann", "User:ann"],
        roles=["dev"],
        allow=True,
        operations=["read,describe"],
        topic=["orders"],
        group=["readers"],
        host="10.0.0.1",
    )
    assert [*map(str, wanted.acls)] == [
        str(acl(f"ALLOW {operation} {resource} LITERAL {principal} 10.0.0.1"))
        for principal in ("User:ann", "Role:dev")
        for resource in ("TOPIC orders", "GROUP readers")
        for operation in ("READ", "DESCRIBE")
    ]


def test_create_prefixed_and_on_the_cluster() -> None:
    options = {"principals": ["User:ann"], "deny": True, "operations": ["all"]}
    [prefixed] = made(Wanted, **options, transactional_id=["tx-"], prefixed=True).acls
    assert prefixed == acl("DENY ALL TRANSACTIONAL_ID tx- PREFIXED User:ann *")
    [cluster] = made(Wanted, **options, cluster=True).acls
    assert cluster == acl("DENY ALL CLUSTER kafka-cluster LITERAL User:ann *")


@pytest.mark.parametrize("name", PRESETS)
def test_create_of_a_preset(name: str) -> None:
    prefix = "dev-" if name == "developer" else ""
    wanted = preset(name, "team", prefix)
    given = {"preset_name": name, "prefix": prefix or None}
    assert made(Wanted, roles=["team"], **given).acls == wanted
    user = made(Wanted, principals=["User:ann"], host="10.0.0.1", **given).acls
    assert user == tuple(a._replace(principal="User:ann", host="10.0.0.1") for a in wanted)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"principals": None}, "add --principal"),
        ({"principals": ["ann"]}, "'ann' is not a principal: write User:ann"),
        ({"principals": ["User:"]}, "is not a principal"),
        ({"roles": [""]}, "--role has no name"),
        ({"allow": False}, "add --allow or --deny"),
        ({"deny": True}, "one of --allow and --deny"),
        ({"operations": None}, "add --operation"),
        ({"topic": None}, "add --topic"),
        ({"topic": [""]}, "--topic has no name"),
        ({"group": ["g"], "operations": ["write"]}, "write is not an operation on a group"),
        ({"cluster": True, "operations": ["read"]}, "read is not an operation on a cluster"),
        ({"cluster": True, "operations": ["describe"], "prefixed": True}, "one name"),
        ({"topic": ["*"], "prefixed": True}, "without --prefixed"),
        ({"host": "client.example"}, "look up no names"),
        ({"prefix": "a"}, "goes with --preset developer"),
        ({"preset_name": "viewer"}, "leave out --allow"),
    ],
)
def test_create_refuses(changed: dict[str, Any], said: str) -> None:
    whole = {
        "principals": ["User:ann"],
        "allow": True,
        "operations": ["read"],
        "topic": ["orders"],
    }
    assert len(made(Wanted, **whole).acls) == 1
    assert said in refusal(Wanted, **(whole | changed))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"preset_name": "developer"}, "needs the prefix of the names it is for; add --prefix"),
        ({"preset_name": "viewer", "prefix": "a"}, "only a developer's role has a prefix"),
        ({"preset_name": "king"}, "there are viewer, developer, operator, admin"),
    ],
)
def test_presets_that_are_refused(given: dict[str, Any], said: str) -> None:
    assert said in refusal(Wanted, roles=["team"], **given)


# -- list and delete ---------------------------------------------------------------------------


def test_nothing_selected_is_everything() -> None:
    assert made(Selection).filters == (AclFilter(),)
    assert made(Selection).is_everything
    assert not made(Selection, allow=True).is_everything


def test_a_name_is_meant_as_it_is_unless_said_otherwise() -> None:
    for options, pattern in (
        ({}, PatternType.LITERAL),
        ({"prefixed": True}, PatternType.PREFIXED),
        ({"match": True}, PatternType.MATCH),
    ):
        [found] = made(Selection, topic=["orders"], **options).filters
        assert found == AclFilter(ResourceType.TOPIC, "orders", pattern)
    [prefixed] = made(Selection, prefixed=True).filters
    assert prefixed == AclFilter(pattern_type=PatternType.PREFIXED)


def test_a_selection_by_all_that_an_acl_has() -> None:
    found = made(
        Selection,
        principals=["User:ann"],
        roles=["dev"],
        deny=True,
        operations=["read,write"],
        topic=["a"],
        cluster=True,
        host="*",
    ).filters
    assert len(found) == len(set(found)) == 8
    everything = [one.only() for one in found]
    assert acl("DENY WRITE TOPIC a LITERAL Role:dev *") in everything
    assert acl("DENY READ CLUSTER kafka-cluster LITERAL User:ann *") in everything


def test_selections_that_are_refused() -> None:
    assert "give one of them" in refusal(Selection, topic=["a"], prefixed=True, match=True)
    assert "add --topic" in refusal(Selection, match=True)


# -- check -------------------------------------------------------------------------------------


def question(**changed: Any) -> Question:
    whole = {"principal": "User:ann", "operation": "read", "topic": ["orders-1"]}
    found: Question = made(Question, **(whole | changed))
    return found


PREFIXED = acl("ALLOW READ TOPIC orders- PREFIXED User:ann *")
DENIES = acl("DENY ALL TOPIC * LITERAL Role:dev *")
FROM_HOST = acl("DENY READ TOPIC orders-1 LITERAL User:* 10.0.0.1")
OTHERS = acl("ALLOW READ TOPIC orders-1 LITERAL User:bob *")


@pytest.mark.parametrize(
    ("changed", "acls", "rule", "reason"),
    [
        ({}, [PREFIXED], PREFIXED, MATCHING_ACL),
        ({"operation": "describe"}, [PREFIXED], PREFIXED, MATCHING_ACL),
        ({}, [PREFIXED, DENIES], PREFIXED, MATCHING_ACL),
        ({"roles": ["dev"]}, [PREFIXED, DENIES], DENIES, MATCHING_ACL),
        ({"host": "10.0.0.1"}, [PREFIXED, FROM_HOST], FROM_HOST, MATCHING_ACL),
        ({"host": "10.0.0.2"}, [PREFIXED, FROM_HOST], PREFIXED, MATCHING_ACL),
        ({"operation": "write"}, [PREFIXED], None, DEFAULT_DENY),
        ({}, [OTHERS], None, DEFAULT_DENY),
        ({}, [], None, DEFAULT_DENY),
    ],
)
def test_the_acl_that_decides(
    changed: dict[str, Any], acls: list[Acl], rule: Acl | None, reason: str
) -> None:
    found = judge(question(**changed), acls, TOLD)
    allowed = rule is not None and rule.permission is PermissionType.ALLOW
    assert found.decision == (allowed, rule, reason)
    assert found.about == len(acls)
    assert found.doubts == ()


def test_super_users_and_resources_without_acls() -> None:
    settings = TOLD._replace(super_users=frozenset({"User:ann"}))
    assert judge(question(), [FROM_HOST], settings).decision == (True, None, SUPER_USER)
    assert not judge(question(principal="User:bob"), [], settings).decision.allowed
    settings = TOLD._replace(allow_everyone_if_no_acl_found=True)
    assert judge(question(), [], settings).decision == (True, None, DEFAULT_ALLOW)
    assert judge(question(), [OTHERS], settings).decision == (False, None, DEFAULT_DENY)


def test_what_is_not_told_is_a_doubt_where_it_could_turn_the_answer() -> None:
    unknown = BrokerSettings()
    assert judge(question(), [PREFIXED], unknown).doubts == ()
    denied = judge(question(), [OTHERS], unknown).doubts
    assert [doubt.split(" cannot")[0] for doubt in denied] == ["the brokers' super.users"]
    no_acl = judge(question(), [], unknown).doubts
    assert [doubt.split(" cannot")[0] for doubt in no_acl] == [
        "the brokers' super.users",
        "the brokers' allow.everyone.if.no.acl.found",
    ]
    [host] = judge(question(), [PREFIXED, FROM_HOST], TOLD).doubts
    assert host == "ACLs for 10.0.0.1 do not count without --host"
    [other] = judge(question(), [PREFIXED], TOLD._replace(authorizer="a.b.C")).doubts
    assert "a.b.C" in other
    [newer] = judge(
        question(), [PREFIXED, PREFIXED._replace(operation=Operation.UNKNOWN)], TOLD
    ).doubts
    assert "upgrade" in newer


def test_questions_that_are_refused() -> None:
    whole = {"principal": "User:ann", "operation": "read", "topic": ["a"]}
    assert "one operation" in refusal(Question, **(whole | {"operation": "read,write"}))
    assert "one resource" in refusal(Question, **(whole | {"topic": ["a", "b"]}))
    assert "one resource" in refusal(Question, **(whole | {"topic": None}))
    assert "write User:ann" in refusal(Question, **(whole | {"principal": "ann"}))


def described(*configs: tuple[str, str | None, bool]) -> BrokerSettings:
    return settings_of(
        DescribeConfigsResult(
            configs=[
                DescribeConfigsResourceResult(name=name, value=value, is_sensitive=hidden)
                for name, value, hidden in configs
            ]
        )
    )


def test_the_settings_of_a_broker() -> None:
    everything = described(
        ("authorizer.class.name", STANDARD_AUTHORIZER, False),
        ("super.users", "User:a;User:b", False),
        ("allow.everyone.if.no.acl.found", "true", False),
    )
    assert everything == (STANDARD_AUTHORIZER, frozenset({"User:a", "User:b"}), True)
    hidden = described(
        ("authorizer.class.name", STANDARD_AUTHORIZER, False),
        ("super.users", None, True),
        ("allow.everyone.if.no.acl.found", None, True),
    )
    assert hidden == BrokerSettings(STANDARD_AUTHORIZER)
    assert described(("authorizer.class.name", "", False)) == ("", frozenset(), False)
    assert described(("super.users", "nonsense", False)).super_users is None


def test_an_acl_as_a_line() -> None:
    assert acl_text(PREFIXED) == (
        "ALLOW READ on every topic that begins with orders- for User:ann from every host"
    )
    assert acl_text(DENIES) == "DENY ALL on every topic for Role:dev from every host"
    assert acl_text(FROM_HOST) == "DENY READ on topic orders-1 for User:* from 10.0.0.1"
