"""Ready roles: each expands to ordinary ACLs for `Role:name`, kept and changed like all others.

- viewer: sees topics, groups, transactions, settings, quotas and ACLs. No messages, no changes.
- developer, with a prefix: everything with topics and groups whose names begin with it, and
  transactions with such ids (not TWO_PHASE_COMMIT). Sees nothing else.
- operator: what a viewer sees; creates, changes and deletes topics and groups; changes settings and
  quotas. No messages; not ACLs, credentials, features, or where replicas are.
- admin: everything.

An operator has no ALTER on the cluster. Kafka asks for it to move replicas or elect leaders, but
also to create ACLs and credentials: who has it can give themselves every right, and is an admin.

The tables are below; they are pure, and an own set of ACLs for a role is as good.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from penstock.auth.principal import ROLE
from penstock.auth.types import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
)

_Table: TypeAlias = dict[ResourceType, tuple[Operation, ...]]

_VIEWER: Final[_Table] = {
    ResourceType.TOPIC: (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    ResourceType.GROUP: (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    ResourceType.CLUSTER: (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE,),
}
_DEVELOPER: Final[_Table] = {
    ResourceType.TOPIC: (Operation.ALL,),
    ResourceType.GROUP: (Operation.ALL,),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
_OPERATOR: Final[_Table] = {
    ResourceType.TOPIC: (
        *_VIEWER[ResourceType.TOPIC],
        Operation.CREATE,
        Operation.ALTER,
        Operation.DELETE,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        *_VIEWER[ResourceType.GROUP],
        Operation.DELETE,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        *_VIEWER[ResourceType.CLUSTER],
        Operation.CREATE,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.TRANSACTIONAL_ID: _VIEWER[ResourceType.TRANSACTIONAL_ID],
}
_ADMIN: Final[_Table] = {kind: (Operation.ALL,) for kind in ResourceType if kind > ResourceType.ANY}

PRESETS: Final = ("viewer", "developer", "operator", "admin")


def viewer(role: str) -> tuple[Acl, ...]:
    return _everywhere(role, _VIEWER)


def developer(role: str, prefix: str) -> tuple[Acl, ...]:
    """ValueError for an empty prefix, with which everything would begin."""
    if not prefix:
        raise ValueError("a developer's role needs the prefix of the names it is for")
    return tuple(
        _allow(role, kind, prefix, PatternType.PREFIXED, operation)
        for kind, operations in _DEVELOPER.items()
        for operation in operations
    )


def operator(role: str) -> tuple[Acl, ...]:
    return _everywhere(role, _OPERATOR)


def admin(role: str) -> tuple[Acl, ...]:
    return _everywhere(role, _ADMIN)


def preset(kind: str, role: str, prefix: str = "") -> tuple[Acl, ...]:
    """The ACLs of `Role:role` by the preset's name; ValueError if there is none of that name."""
    if kind == "developer":
        return developer(role, prefix)
    if prefix:
        raise ValueError(f"only a developer's role has a prefix, not one of {kind!r}")
    found = {"viewer": viewer, "operator": operator, "admin": admin}.get(kind)
    if found is None:
        raise ValueError(f"no preset is called {kind!r}: there are {', '.join(PRESETS)}")
    return found(role)


def _everywhere(role: str, table: _Table) -> tuple[Acl, ...]:
    return tuple(
        _allow(role, kind, _every(kind), PatternType.LITERAL, operation)
        for kind, operations in table.items()
        for operation in operations
    )


def _every(kind: ResourceType) -> str:
    return CLUSTER_NAME if kind is ResourceType.CLUSTER else WILDCARD


def _allow(
    role: str, kind: ResourceType, name: str, pattern: PatternType, operation: Operation
) -> Acl:
    if not role:
        raise ValueError("a role needs a name")
    return Acl(kind, name, pattern, f"{ROLE}:{role}", WILDCARD, operation, PermissionType.ALLOW)
