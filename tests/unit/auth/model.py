"""What the ACLs mean, written down as plainly as it can be; and random ones to try.

Names are short and of few letters, so that patterns meet them.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from penstock.auth.types import Acl, Operation, PatternType, PermissionType, ResourceType

KAFKAS_NAMES = ("a", "ab", "abc", "b", "ba", "hardcode", "har", "*", "kafka-cluster", "é", "a*")
"""Not those upon which Kafka's own search fails: see `penstock.auth.acls`."""
NAMES = (*KAFKAS_NAMES, "*a", "(a", "(")
PATTERNS = (*KAFKAS_NAMES, "*", "*", "h", "abcd")
PRINCIPALS = ("User:alice", "User:bob", "Role:dev", "Role:ops", "Service:alice", "User:*")
HOSTS = ("10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1")
TYPES = tuple(kind for kind in ResourceType if kind > ResourceType.ANY)
OPERATIONS = tuple(operation for operation in Operation if operation > Operation.ANY)

GOOD = Acl(
    ResourceType.TOPIC,
    "a",
    PatternType.LITERAL,
    "User:a",
    "*",
    Operation.READ,
    PermissionType.ALLOW,
)
"""An ACL without fault."""

IMPLIED = {
    "DESCRIBE": {"READ", "WRITE", "DELETE", "ALTER"},
    "DESCRIBE_CONFIGS": {"ALTER_CONFIGS"},
}


def is_about(acl: Acl, kind: ResourceType, name: str) -> bool:
    if acl.resource_type != kind:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in ("*", name)


def allowed(
    acls: Sequence[Acl],
    names: Sequence[str],
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    *,
    everyone: bool = False,
) -> bool:
    about = [acl for acl in acls if is_about(acl, kind, name)]
    meant = [
        acl for acl in about if acl.principal in (*names, "User:*") and acl.host in ("*", host)
    ]
    same = {operation.name, "ALL"}
    for acl in meant:
        if acl.permission == PermissionType.DENY and acl.operation.name in same:
            return False
    for acl in meant:
        if acl.permission == PermissionType.ALLOW and acl.operation.name in same | IMPLIED.get(
            operation.name, set()
        ):
            return True
    return everyone and not about


def random_acl(
    rng: Random, kinds: Sequence[ResourceType] = TYPES, patterns: Sequence[str] = PATTERNS
) -> Acl:
    return Acl(
        rng.choice(kinds),
        rng.choice(patterns),
        rng.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        rng.choice(PRINCIPALS),
        rng.choice(("*", "*", *HOSTS)),
        rng.choice((*OPERATIONS, Operation.ALL, Operation.WRITE)),
        rng.choice((PermissionType.ALLOW, PermissionType.ALLOW, PermissionType.DENY)),
    )


def random_acls(rng: Random, patterns: Sequence[str] = PATTERNS) -> list[Acl]:
    """Without doubles, of which the controller has none; mostly about one type."""
    kinds = rng.choice(((ResourceType.TOPIC,), (ResourceType.GROUP,), TYPES))
    found = {random_acl(rng, kinds, patterns) for _ in range(rng.randrange(14))}
    return sorted(found)
