"""Rights, filters, rules and names as Apache Kafka's own classes have them, asked in one JVM."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeAlias

import pytest

from penstock.auth.acl_rules import acl_fault
from penstock.auth.acls import AclFilter, AclIndex
from penstock.auth.authorizer import SUPPORTED_OPERATIONS, Authorizer, parse_super_users
from penstock.auth.dn import PrincipalMapper, name_text
from penstock.auth.principal import Principal
from penstock.auth.types import Acl, Operation, PatternType, PermissionType, ResourceType
from support.reference import java_command
from unit.auth import model
from unit.auth.random_names import RULES, SUBJECTS, random_name, random_rules

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("auth-java")]

PROGRAM = Path(__file__).parent / "java" / "Auth.java"
ACL_SETS = 3_000
QUESTIONS = 25
FILTERED_SETS = 500
RULE_SETS = 2_000
NAMES = 1_500
SUPER_USERS = "User:bob; Service:alice"


Question: TypeAlias = dict[str, Any]


def _ask_java(questions: list[Question]) -> list[Any]:
    done = subprocess.run(
        java_command(str(PROGRAM)),
        input="".join(f"{json.dumps(question)}\n" for question in questions),
        capture_output=True,
        encoding="utf-8",
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.split("\n")[:-1]]
    assert len(answers) == len(questions), done.stderr
    return answers


def _rights(seed: int) -> tuple[dict[str, Any], list[bool]]:
    """A set of ACLs with questions about them, and our answers."""
    rng = Random(seed)
    acls, everyone = model.random_acls(rng), rng.random() < 0.3
    supers = SUPER_USERS if rng.random() < 0.2 else ""
    authorizer = Authorizer(parse_super_users(supers), allow_everyone_if_no_acl_found=everyone)
    authorizer.load((place.to_bytes(16, "big"), acl) for place, acl in enumerate(acls))
    kinds = tuple({acl.resource_type for acl in acls}) or model.TYPES
    questions: list[list[Any]] = []
    ours = []
    for _ in range(QUESTIONS):
        kind, name = rng.choice(model.PRINCIPALS[:-1]).split(":")
        who = Principal(kind, name, rng.choice(model.HOSTS))
        operation, resource_type = rng.choice(model.OPERATIONS), rng.choice(kinds)
        resource = None if rng.random() < 0.2 else rng.choice(model.KAFKAS_NAMES)
        if resource is None:
            operation = rng.choice((operation, Operation.WRITE))
            ours.append(authorizer.allows_any(who, operation, resource_type))
        else:
            ours.append(authorizer.allows(who, operation, resource_type, resource, logged=False))
        questions.append([who.text, who.host, operation, resource_type, resource])
    line = {
        "do": "acls",
        "super": supers,
        "everyone": str(everyone).lower(),
        "acls": acls,
        "questions": questions,
    }
    return line, ours


def _filters(rng: Random) -> Iterator[AclFilter]:
    """Most fields of each leave all through, so that something is found."""
    for _ in range(20):
        free = AclFilter()
        drawn = AclFilter(
            rng.choice((ResourceType.TOPIC, ResourceType.GROUP)),
            rng.choice(model.PATTERNS),
            rng.choice([kind for kind in PatternType if kind]),
            rng.choice(model.PRINCIPALS),
            rng.choice(("*", *model.HOSTS)),
            rng.choice(model.OPERATIONS),
            rng.choice([kind for kind in PermissionType if kind]),
        )
        picked = (rng.choice(pair) for pair in zip(free, drawn, drawn, strict=True))
        yield (
            AclFilter(*picked)
            if rng.random() < 0.2
            else free._replace(resource_name=drawn.resource_name, pattern_type=drawn.pattern_type)
        )


def _filtered(seed: int) -> Question:
    rng = Random(seed)
    return {"do": "filter", "acls": model.random_acls(rng), "filters": [*_filters(rng)]}


def _acls_with_faults() -> Iterator[Acl]:
    good = model.GOOD
    yield from (good._replace(resource_type=kind) for kind in ResourceType if kind != 4)
    yield from (good._replace(pattern_type=kind) for kind in PatternType)
    yield from (good._replace(operation=kind) for kind in Operation)
    yield from (good._replace(permission=kind) for kind in PermissionType)
    yield from (good._replace(principal=text) for text in ("", "alice", ":", "a:b:c", "User:"))
    yield good._replace(pattern_type=PatternType.UNKNOWN, principal="alice")


ESCAPING: list[Any] = ["User:alice", "10.0.0.1", Operation.READ, ResourceType.GROUP, "*x"]


class Asked(NamedTuple):
    """All questions; `java` has the answers in the same form."""

    rights: list[Any]
    filters: list[Any]
    faults: list[Any]
    tables: list[Any]
    names: list[Any]
    rules: list[Any]
    escaping: list[Any]


@pytest.fixture(scope="module")
def asked() -> Asked:
    names = [random_name(Random(seed)) for seed in range(NAMES)]
    rules = [*RULES, *(random_rules(Random(seed)) for seed in range(RULE_SETS))]
    denial = Acl(
        ResourceType.GROUP,
        "*",
        PatternType.LITERAL,
        "User:*",
        "*",
        Operation.ALL,
        PermissionType.DENY,
    )
    return Asked(
        [_rights(seed)[0] for seed in range(ACL_SETS)],
        [_filtered(seed) for seed in range(FILTERED_SETS)],
        [{"do": "validate", "acl": acl} for acl in _acls_with_faults()],
        [{"do": "codes"}, {"do": "supported"}],
        [{"do": "name", "der": base64.b64encode(name).decode()} for name in names],
        [{"do": "map", "rules": text, "names": SUBJECTS} for text in rules],
        [
            {
                "do": "acls",
                "super": "",
                "everyone": "true",
                "acls": [denial],
                "questions": [ESCAPING],
            }
        ],
    )


@pytest.fixture(scope="module")
def java(asked: Asked) -> Asked:
    answers = iter(_ask_java([question for questions in asked for question in questions]))
    return Asked(*([next(answers) for _ in questions] for questions in asked))


def test_kafka_decides_the_same(asked: Asked, java: Asked) -> None:
    allowed = 0
    for seed, (line, theirs) in enumerate(zip(asked.rights, java.rights, strict=True)):
        _, ours = _rights(seed)
        assert isinstance(theirs, list), (line, theirs)
        for question, our, their in zip(line["questions"], ours, theirs, strict=True):
            assert our == their, (line | {"questions": question}, our, their)
        allowed += sum(ours)
    assert 0.1 < allowed / (ACL_SETS * QUESTIONS) < 0.9


def test_a_group_that_begins_with_a_star_escapes_denials_of_all_in_kafka_alone(
    asked: Asked, java: Asked
) -> None:
    """Should it fail: Kafka has been mended, and `penstock.auth.acls` has one difference less."""
    (line,), ((escaped,),) = asked.escaping, java.escaping
    authorizer = Authorizer(frozenset(), allow_everyone_if_no_acl_found=True)
    authorizer.load([(bytes(16), line["acls"][0])])
    who = Principal("User", "alice", "10.0.0.1")
    assert not authorizer.allows(who, Operation.READ, ResourceType.GROUP, "*x")
    assert escaped


def test_kafka_finds_the_same_by_filters(asked: Asked, java: Asked) -> None:
    found = 0
    for line, theirs in zip(asked.filters, java.filters, strict=True):
        index = AclIndex()
        for place, acl in enumerate(line["acls"]):
            index.add(place.to_bytes(16, "big"), acl)
        for wanted, places in zip(line["filters"], theirs, strict=True):
            ours = [int.from_bytes(uuid, "big") for uuid, _ in index.matching(wanted)]
            assert ours == places, (line["acls"], wanted)
            found += len(ours)
    assert found > FILTERED_SETS


def test_kafka_refuses_the_same_acls_for_the_same_reasons(asked: Asked, java: Asked) -> None:
    """Those with ANY or MATCH fail there before they can be judged."""
    judged = 0
    for question, answer in zip(asked.faults, java.faults, strict=True):
        fault = acl_fault(question["acl"])
        if answer is None:
            assert fault is None
        elif answer["error"] == "IllegalArgumentException":
            assert answer["message"].endswith(("must not be ANY", "must not be MATCH"))
            assert fault is not None
        else:
            assert (answer["error"], answer["message"]) == ("InvalidRequestException", fault)
            judged += 1
    assert judged >= 6


def test_numbers_and_bits_are_kafkas(java: Asked) -> None:
    codes, supported = java.tables
    for code, names in codes.items():
        kinds = (ResourceType, PatternType, Operation, PermissionType)
        assert [kind(int(code)).name for kind in kinds] == names
    assert supported == {
        kind.name: sum(1 << operation for operation in operations)
        for kind, operations in SUPPORTED_OPERATIONS.items()
    }


def _our_text(name: bytes) -> str:
    try:
        return name_text(name)
    except ValueError as error:
        return str(error)


def test_kafka_writes_the_same_names(asked: Asked, java: Asked) -> None:
    refused = 0
    for question, theirs in zip(asked.names, java.names, strict=True):
        name = base64.b64decode(question["der"])
        ours = _our_text(name)
        if "not UTF-8" in ours:
            assert "\N{REPLACEMENT CHARACTER}" in theirs
            refused += 1
        else:
            assert ours == theirs, name.hex()
    assert refused < NAMES / 4


def _our_names(rules: str, names: list[str]) -> list[str | None] | str:
    try:
        mapper = PrincipalMapper(rules)
    except ValueError as error:
        return str(error)
    return [mapper.name(name) for name in names]


def _fails(answer: Any) -> bool:
    return isinstance(answer, dict) and answer["error"] != "NoMatchingRule"


def test_kafka_maps_names_the_same(asked: Asked, java: Asked) -> None:
    mapped = refused = 0
    for question, theirs in zip(asked.rules, java.rules, strict=True):
        ours = _our_names(question["rules"], SUBJECTS)
        if isinstance(theirs, dict):
            assert isinstance(ours, str), (question["rules"], theirs, ours)
        elif isinstance(ours, str):
            would_fail = "groups in ()" in ours or any(_fails(their) for their in theirs)
            refused += not would_fail
        else:
            for name, our, their in zip(SUBJECTS, ours, theirs, strict=True):
                wanted = None if isinstance(their, dict) and not _fails(their) else their
                assert our == wanted, (question["rules"], name)
                mapped += our is not None
    assert mapped > RULE_SETS
    assert refused < RULE_SETS / 20, "too many rules that Kafka takes are refused"
