"""ACLs as rows of a table, as a line and as JSON."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.auth.types import WILDCARD, Acl, PatternType, ResourceType
from penstock.cli.output import print_table

_COLUMNS = ("principal", "permission", "operation", "resource", "name", "pattern", "host")


def print_acls(acls: Iterable[Acl]) -> None:
    rows = [
        (
            acl.principal,
            acl.permission.name,
            acl.operation.name,
            acl.resource_type.name,
            acl.resource_name,
            acl.pattern_type.name,
            acl.host,
        )
        for acl in acls
    ]
    print_table(_COLUMNS, sorted(rows))


def acl_json(acl: Acl) -> dict[str, str]:
    """In Kafka's words."""
    return {
        "principal": acl.principal,
        "permission": acl.permission.name,
        "operation": acl.operation.name,
        "resource_type": acl.resource_type.name,
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type.name,
        "host": acl.host,
    }


def acl_text(acl: Acl) -> str:
    """`ALLOW READ on every topic that begins with orders- for User:ann from every host`."""
    operation = f"{acl.permission.name} {acl.operation.name}"
    return (
        f"{operation} on {_pattern_text(acl)} for {acl.principal} from"
        f" {'every host' if acl.host == WILDCARD else acl.host}"
    )


def resource_text(kind: ResourceType, name: str) -> str:
    """`topic orders`, `the cluster`."""
    if kind is ResourceType.CLUSTER:
        return "the cluster"
    return f"{_word(kind)} {name}"


def _pattern_text(acl: Acl) -> str:
    kind, name = acl.resource_type, acl.resource_name
    if acl.pattern_type is not PatternType.LITERAL:
        return f"every {_word(kind)} that begins with {name}"
    if name == WILDCARD:
        return f"every {_word(kind)}"
    return resource_text(kind, name)


def _word(kind: ResourceType) -> str:
    return kind.name.lower().replace("_", " ")
