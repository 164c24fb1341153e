"""The authorizer keeps what it decided, and nothing of it outlives a change."""

from __future__ import annotations

import json
import logging
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.auth import authorizer as module
from penstock.auth.acls import AclFilter
from penstock.auth.authorizer import SUPPORTED_OPERATIONS, Authorizer, parse_super_users
from penstock.auth.principal import Principal
from penstock.auth.types import Acl, Operation, PatternType, PermissionType, ResourceType
from penstock.observe.logs import JsonFormatter, TextFormatter
from unit.auth import model

TOPIC = ResourceType.TOPIC
ALICE = Principal("User", "alice", "10.0.0.1")


def rule(
    name: str,
    operation: Operation = Operation.READ,
    permission: PermissionType = PermissionType.ALLOW,
    principal: str = "User:alice",
) -> Acl:
    return Acl(TOPIC, name, PatternType.LITERAL, principal, "*", operation, permission)


def loaded(*acls: Acl, super_users: frozenset[str] = frozenset()) -> Authorizer:
    authorizer = Authorizer(super_users)
    authorizer.load((bytes([place + 1]) * 16, acl) for place, acl in enumerate(acls))
    return authorizer


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_every_change_counts_at_once(seed: int) -> None:
    rng = Random(seed)
    everyone = rng.random() < 0.3
    authorizer = Authorizer(frozenset(), allow_everyone_if_no_acl_found=everyone)
    authorizer.load([])
    acls: dict[bytes, Acl] = {}
    members: dict[str, frozenset[str]] = {}
    for step in range(12):
        if acls and rng.random() < 0.3:
            gone = rng.choice(list(acls))
            del acls[gone]
            authorizer.remove_acl(gone)
        elif rng.random() < 0.3:
            who = rng.choice(("User:alice", "User:bob"))
            members[who] = frozenset(rng.sample(("dev", "ops"), rng.randrange(3)))
            authorizer.set_roles(who, members[who])
            assert authorizer.roles_of(who) == members[who]
        else:
            uuid = step.to_bytes(16, "big")
            acls[uuid] = model.random_acl(rng, (TOPIC,))
            authorizer.add_acl(uuid, acls[uuid])
        for _ in range(20):
            granted = frozenset(rng.sample(("dev", "ops"), rng.randrange(2)))
            name = rng.choice(("alice", "bob"))
            principal = Principal("User", name, rng.choice(model.HOSTS), roles=granted)
            roles = granted | members.get(principal.text, frozenset())
            names = (principal.text, *(f"Role:{role}" for role in roles))
            asked = (rng.choice(model.OPERATIONS), TOPIC, rng.choice(model.NAMES))
            wanted = model.allowed(
                list(acls.values()), names, principal.host, *asked, everyone=everyone
            )
            assert authorizer.allows(principal, *asked, logged=False) == wanted
            assert authorizer.decide(principal, *asked).allowed == wanted


def test_a_super_user_may_do_everything_even_before_the_acls_are_there() -> None:
    root = Principal("User", "root", "10.0.0.1")
    authorizer = Authorizer(parse_super_users("User:root"), allow_everyone_if_no_acl_found=True)
    for ready in (False, True):
        assert authorizer.allows(root, Operation.WRITE, TOPIC, "a")
        assert authorizer.allows_any(root, Operation.WRITE, TOPIC)
        assert authorizer.decide(root, Operation.WRITE, TOPIC, "a").reason == "SuperUser"
        assert authorizer.allows(ALICE, Operation.WRITE, TOPIC, "a") == ready
        assert authorizer.allows_any(ALICE, Operation.WRITE, TOPIC) == ready
        if not ready:
            denial = rule("denied", Operation.ALL, PermissionType.DENY, "User:root")
            authorizer.load([(b"1" * 16, denial)])
    assert authorizer.allows(root, Operation.WRITE, TOPIC, "denied")
    assert not authorizer.allows(ALICE, Operation.WRITE, TOPIC, "denied")


def test_another_type_or_host_is_no_super_user() -> None:
    authorizer = loaded(super_users=frozenset({"User:root"}))
    for other in (Principal("Service", "root"), Principal("User", "root2"), ALICE):
        assert not authorizer.allows(other, Operation.READ, TOPIC, "a", logged=False)


def test_super_users_are_separated_by_semicolons() -> None:
    text = " ;User:CN=a,O=b; User:bob ;"
    assert parse_super_users(text) == {"User:CN=a,O=b", "User:bob"}
    assert parse_super_users("") == frozenset()
    with pytest.raises(ValueError, match="'bob'"):
        parse_super_users("User:alice;bob")


def test_any_topic_follows_changes() -> None:
    authorizer = loaded()
    assert not authorizer.allows_any(ALICE, Operation.WRITE, TOPIC)
    authorizer.add_acl(b"1" * 16, rule("a", Operation.WRITE))
    assert authorizer.allows_any(ALICE, Operation.WRITE, TOPIC)
    assert not authorizer.allows_any(ALICE, Operation.READ, TOPIC)


def test_operations_are_shown_as_bits() -> None:
    authorizer = loaded(rule("a"), super_users=frozenset({"User:root"}))
    bits = authorizer.authorized_operations(ALICE, TOPIC, "a")
    assert bits == 1 << Operation.READ | 1 << Operation.DESCRIBE
    assert authorizer.authorized_operations(ALICE, TOPIC, "b") == 0
    for kind, operations in SUPPORTED_OPERATIONS.items():
        bits = authorizer.authorized_operations(Principal("User", "root"), kind, "x")
        assert bits == sum(1 << operation for operation in operations)


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RIGHTS_CACHED_MAX", 8)
    authorizer = loaded(rule("*"))
    for number in range(50):
        assert authorizer.allows(ALICE, Operation.READ, TOPIC, f"t{number}")
        who = Principal("User", f"u{number}")
        assert not authorizer.allows_any(who, Operation.READ, TOPIC)
        assert 0 < len(authorizer._rights[TOPIC]) <= 8
        assert 0 < len(authorizer._any) <= 8
    kept = len(authorizer._rights[TOPIC])
    assert authorizer.allows(ALICE, Operation.READ, TOPIC, "x" * 250)
    assert len(authorizer._rights[TOPIC]) == kept


def test_acls_are_found_by_filters() -> None:
    authorizer = loaded(rule("a"), rule("b"))
    assert [acl for _, acl in authorizer.matching(AclFilter(resource_name="b"))] == [rule("b")]


def records(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str, str]]:
    return [
        (record.levelname, record.message, vars(record)["resource"], vars(record)["rule"])
        for record in caplog.records
        if record.name == "penstock.authorizer"
    ]


def test_denied_is_logged_and_allowed_for_those_who_debug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "penstock.authorizer")
    authorizer = loaded(rule("a"), rule("c", Operation.ALL, PermissionType.DENY))
    for _ in range(2):
        authorizer.allows(ALICE, Operation.READ, TOPIC, "a")
        authorizer.allows(ALICE, Operation.READ, TOPIC, "b")
    authorizer.allows(ALICE, Operation.READ, TOPIC, "c", logged=False)
    authorizer.authorized_operations(ALICE, TOPIC, "c")
    assert records(caplog) == [("INFO", "denied", "Topic:LITERAL:b", "DefaultDeny")] * 2
    caplog.clear()
    caplog.set_level(logging.DEBUG, "penstock.authorizer")
    authorizer.allows(ALICE, Operation.READ, TOPIC, "a")
    authorizer.allows(ALICE, Operation.READ, TOPIC, "c")
    given = "READ Topic:LITERAL:a to User:alice from *"
    taken = "ALL Topic:LITERAL:c to User:alice from *"
    assert records(caplog) == [
        ("DEBUG", "allowed", "Topic:LITERAL:a", f"MatchingAcl(ALLOW {given})"),
        ("INFO", "denied", "Topic:LITERAL:c", f"MatchingAcl(DENY {taken})"),
    ]


def test_a_name_forges_no_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.authorizer")
    mallory = Principal("User", "m\r\n2026 INFO allowed principal=User:root", "10.0.0.1")
    bad = 'x\n2026 INFO penstock.authorizer: allowed principal="User:root\x1b[2K\u2028%s{0}'
    loaded().allows(mallory, Operation.READ, ResourceType.GROUP, bad + "y" * 40_000)
    (record,) = caplog.records
    text = TextFormatter(colour=False).format(record)
    assert text.isprintable()
    assert len(text) < 1_000
    assert " principal='User:m" in text
    shown = json.loads(JsonFormatter().format(record))
    assert shown["resource"].startswith(f"Group:LITERAL:{bad}")
    assert len(JsonFormatter().format(record).splitlines()) == 1
