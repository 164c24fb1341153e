"""The index of ACLs decides what the plain model says, whatever was added and removed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.auth.acls import AclFilter, AclIndex
from penstock.auth.types import Acl, Operation, PatternType, PermissionType, ResourceType
from penstock.base.errors import InvariantBroken
from unit.auth import model

SEEDS = st.integers(0, 2**32)


def index_of(acls: list[Acl], *, everyone: bool = False, removed: Sequence[Acl] = ()) -> AclIndex:
    """With `acls`, after those to be removed were there as well."""
    index = AclIndex(allow_everyone_if_no_acl_found=everyone)
    gone = [acl for acl in removed if acl not in acls]
    for place, acl in enumerate([*acls, *gone]):
        index.add(place.to_bytes(16, "big"), acl)
    for place in range(len(acls), len(index)):
        index.remove(place.to_bytes(16, "big"))
    return index


def allow(
    name: str,
    operation: Operation = Operation.READ,
    *,
    principal: str = "User:alice",
    pattern: PatternType = PatternType.LITERAL,
    host: str = "*",
    permission: PermissionType = PermissionType.ALLOW,
) -> Acl:
    return Acl(ResourceType.TOPIC, name, pattern, principal, host, operation, permission)


def deny(name: str, operation: Operation = Operation.READ, **fields: object) -> Acl:
    acl = allow(name, operation, permission=PermissionType.DENY)
    return acl._replace(**fields)


@settings(max_examples=400, deadline=None)
@given(SEEDS)
def test_decisions_are_those_of_the_model(seed: int) -> None:
    rng = Random(seed)
    patterns = (*model.PATTERNS, "*a", "(a", "(")
    acls, everyone = model.random_acls(rng, patterns), rng.random() < 0.3
    index = index_of(acls, everyone=everyone, removed=model.random_acls(rng, patterns))
    for kind in {acl.resource_type for acl in acls} or {ResourceType.TOPIC}:
        for name in model.NAMES:
            who = tuple(rng.sample(model.PRINCIPALS[:-1], rng.randrange(1, 4)))
            host = rng.choice(model.HOSTS)
            bits = index.operations(who, host, kind, name)
            for operation in Operation:
                asked = (who, host, operation, kind, name)
                decision = index.decide(*asked)
                assert decision.allowed == model.allowed(acls, *asked, everyone=everyone), asked
                assert decision.allowed == bool(bits >> operation & 1)
                if decision.rule is not None:
                    assert decision.rule in acls
                    assert index_of([decision.rule]).decide(*asked) == decision
                    assert decision.reason == "MatchingAcl"


@settings(max_examples=400, deadline=None)
@given(SEEDS)
def test_any_resource_is_allowed_if_there_is_one(seed: int) -> None:
    """WRITE is implied by nothing, and a name beyond all patterns stands for all others."""
    rng = Random(seed)
    acls = model.random_acls(rng)
    index = index_of(acls, removed=model.random_acls(rng))
    who = tuple(rng.sample(model.PRINCIPALS[:-1], rng.randrange(1, 4)))
    for kind in model.TYPES:
        names = {"hardcode", "~"}
        for acl in acls:
            names |= {acl.resource_name, acl.resource_name + "~"}
        asked = (who, model.HOSTS[0], Operation.WRITE, kind)
        there_is = any(model.allowed(acls, *asked, name) for name in names - {"*"})
        assert index.allows_any(*asked) == there_is


def test_any_resource_needs_a_type_and_an_operation() -> None:
    for operation, kind in (
        (Operation.ANY, ResourceType.TOPIC),
        (Operation.UNKNOWN, ResourceType.TOPIC),
        (Operation.WRITE, ResourceType.ANY),
        (Operation.WRITE, ResourceType.UNKNOWN),
    ):
        with pytest.raises(InvariantBroken):
            AclIndex().allows_any(("User:alice",), "h", operation, kind)


def test_a_denial_of_a_role_denies() -> None:
    index = index_of([allow("*"), deny("a", principal="Role:banned")])
    asked = ("h", Operation.READ, ResourceType.TOPIC, "a")
    assert index.decide(("User:alice",), *asked).allowed
    assert not index.decide(("User:alice", "Role:banned"), *asked).allowed


def test_what_is_implied_is_allowed_and_not_denied() -> None:
    index = index_of([allow("a"), allow("b", Operation.ALL), deny("b")])
    who = (("User:alice",), "h")
    assert index.decide(*who, Operation.DESCRIBE, ResourceType.TOPIC, "a").allowed
    assert not index.decide(*who, Operation.WRITE, ResourceType.TOPIC, "a").allowed
    assert index.decide(*who, Operation.DESCRIBE, ResourceType.TOPIC, "b").allowed
    assert not index.decide(*who, Operation.READ, ResourceType.TOPIC, "b").allowed


def test_a_name_that_an_acl_is_about_is_no_longer_open_to_everyone() -> None:
    acls = [allow("secret", principal="User:bob", host="10.9.9.9")]
    index = index_of(acls, everyone=True)
    asked = (("User:alice",), "h", Operation.READ, ResourceType.TOPIC)
    assert index.decide(*asked, "other") == (True, None, "DefaultAllow")
    assert index.decide(*asked, "secret") == (False, None, "DefaultDeny")
    index.remove(bytes(16))
    assert index.decide(*asked, "secret").allowed


def test_the_rule_that_decided_is_the_nearest_one() -> None:
    near = allow("abc")
    acls = [allow("*"), allow("a", pattern=PatternType.PREFIXED), near]
    asked = (("User:alice",), "h", Operation.READ, ResourceType.TOPIC, "abc")
    assert index_of(acls).decide(*asked).rule == near
    denial = deny("*", Operation.ALL)
    assert index_of([*acls, denial]).decide(*asked).rule == denial


def test_an_id_is_added_and_removed_once() -> None:
    index = index_of([allow("a")])
    with pytest.raises(InvariantBroken):
        index.add(bytes(16), allow("b"))
    index.remove(bytes(16))
    assert len(index) == 0
    with pytest.raises(InvariantBroken):
        index.remove(bytes(16))


def test_only_lengths_that_prefixes_have_are_looked_up() -> None:
    prefixes = [allow(name, pattern=PatternType.PREFIXED) for name in ("ab", "cd", "abc")]
    topics = index_of(prefixes[:1], removed=prefixes)._types[ResourceType.TOPIC]
    assert topics.lengths == (2,)
    assert list(topics.prefixes) == ["ab"]


def test_filters_find_what_would_apply() -> None:
    acls = [
        allow("ab"),
        allow("*"),
        allow("a", pattern=PatternType.PREFIXED),
        allow("b", pattern=PatternType.PREFIXED),
        allow("*", pattern=PatternType.PREFIXED),
    ]
    index = index_of(acls)

    def found(wanted: AclFilter) -> list[Acl]:
        return [acl for _, acl in index.matching(wanted)]

    assert found(AclFilter()) == acls
    assert found(AclFilter(resource_name="ab", pattern_type=PatternType.MATCH)) == acls[:3]
    assert found(AclFilter(resource_name="ab")) == acls[:1]
    assert found(AclFilter(resource_name="*")) == [acls[1], acls[4]]
    assert found(AclFilter(resource_name="a", pattern_type=PatternType.LITERAL)) == []
    assert found(AclFilter(principal="User:bob")) == []


def test_a_filter_goes_on_while_the_index_changes() -> None:
    index = index_of([allow("a"), allow("b")])
    matching = index.matching(AclFilter())
    first, _ = next(matching)
    index.remove(first)
    assert len(list(matching)) == 1
