"""The options that say which ACLs are meant, and what their texts come to. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import Annotated, Any, NamedTuple

import typer

from penstock.auth.authorizer import SUPPORTED_OPERATIONS
from penstock.auth.principal import ROLE, USER
from penstock.auth.types import (
    CLUSTER_NAME,
    WILDCARD,
    Operation,
    PermissionType,
    ResourceType,
)
from penstock.cli.errors import did_you_mean, usage_error

Principals = Annotated[
    list[str] | None,
    typer.Option(
        "--principal",
        metavar="TYPE:NAME",
        help="Whom the ACLs name, as User:ann; User:* is everybody; may be repeated.",
    ),
]
Roles = Annotated[
    list[str] | None,
    typer.Option("--role", metavar="NAME", help="Short for --principal Role:NAME."),
]
Operations = Annotated[
    list[str] | None,
    typer.Option(
        "--operation",
        metavar="NAME[,NAME...]",
        help="Operations, as read,write or describe-configs; all is every one.",
    ),
]
Allow = Annotated[bool, typer.Option("--allow", help="ACLs that allow.")]
Deny = Annotated[bool, typer.Option("--deny", help="ACLs that deny, which count above the others.")]
Host = Annotated[
    str | None,
    typer.Option("--host", metavar="ADDRESS", help="The IP address of the client; * is every one."),
]
Prefixed = Annotated[
    bool,
    typer.Option("--prefixed", help="The names of resources are beginnings of names."),
]


class Resource(NamedTuple):
    type: ResourceType
    name: str


def _named(option: str, what: str) -> Any:
    return Annotated[
        list[str] | None,
        typer.Option(option, metavar="NAME", help=f"{what}; * is every one; may be repeated."),
    ]


RESOURCE_OPTIONS: dict[str, tuple[Any, Any]] = {
    "topic": (_named("--topic", "A topic"), None),
    "group": (_named("--group", "A group"), None),
    "cluster": (Annotated[bool, typer.Option("--cluster", help="The cluster itself.")], False),
    "transactional_id": (_named("--transactional-id", "A transactional id"), None),
    "delegation_token": (_named("--delegation-token", "The id of a delegation token"), None),
    "user": (_named("--user", "A user whose delegation tokens are meant, as User:ann"), None),
}
"""By the names of Kafka's types of resources."""
ACL_OPTIONS: dict[str, tuple[Any, Any]] = {
    "principals": (Principals, None),
    "roles": (Roles, None),
    "allow": (Allow, False),
    "deny": (Deny, False),
    "operations": (Operations, None),
    **RESOURCE_OPTIONS,
    "prefixed": (Prefixed, False),
    "host": (Host, None),
}
"""What `create`, `list` and `delete` have in common."""
RESOURCES_TEXT = "--topic, --group, --cluster or --transactional-id"


def resources_of(options: Mapping[str, Any]) -> list[Resource]:
    return list(dict.fromkeys(_resources(options)))


def _resources(options: Mapping[str, Any]) -> Iterator[Resource]:
    for option in RESOURCE_OPTIONS:
        kind = ResourceType[option.upper()]
        if kind is ResourceType.CLUSTER:
            if options[option]:
                yield Resource(kind, CLUSTER_NAME)
            continue
        for name in options[option] or ():
            if not name:
                raise usage_error(f"--{_dashed(kind)} has no name: give one, or * for every one")
            yield Resource(kind, name)


def principals_of(options: Mapping[str, Any]) -> list[str]:
    """Those of `--principal` and of `--role`."""
    found = [parse_principal(text) for text in options["principals"] or ()]
    return list(dict.fromkeys([*found, *role_principals(options["roles"] or ())]))


def parse_principal(text: str) -> str:
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        advice = f"write {USER}:{text}" if text and not colon else f"write {USER}:ann"
        raise usage_error(f"{text!r} is not a principal: {advice}, or use --role for a role")
    return text


def role_principals(roles: Iterable[str]) -> list[str]:
    for role in roles:
        if not role:
            raise usage_error("--role has no name: give the role's")
    return [f"{ROLE}:{role}" for role in roles]


_OPERATIONS = {
    operation.name.lower(): operation for operation in Operation if operation > Operation.ANY
}


def parse_operations(texts: Iterable[str]) -> list[Operation]:
    """`read,write`; two words as describe-configs, DescribeConfigs or DESCRIBE_CONFIGS."""
    found = [_operation(word.strip()) for text in texts for word in text.split(",")]
    return list(dict.fromkeys(found))


def _operation(word: str) -> Operation:
    plain = word.lower().replace("-", "").replace("_", "")
    for name, operation in _OPERATIONS.items():
        if name.replace("_", "") == plain:
            return operation
    known = [_dashed(operation) for operation in _OPERATIONS.values()]
    raise usage_error(
        f"{word!r} is not an operation{did_you_mean(word.lower(), known)}: there are"
        f" {', '.join(known)}"
    )


def require_asked_for(operation: Operation, kind: ResourceType) -> None:
    """Refuses what brokers never ask for: an ACL for it would have no effect."""
    known = (Operation.ALL, *SUPPORTED_OPERATIONS[kind])
    if operation not in known:
        raise usage_error(
            f"{_dashed(operation)} is not an operation on a {_dashed(kind)}: those are"
            f" {', '.join(map(_dashed, known))}"
        )


def permission_of(options: Mapping[str, Any]) -> PermissionType:
    """ANY if neither `--allow` nor `--deny` was given."""
    if options["allow"] and options["deny"]:
        raise usage_error("an ACL allows or denies: give one of --allow and --deny")
    if options["allow"]:
        return PermissionType.ALLOW
    return PermissionType.DENY if options["deny"] else PermissionType.ANY


def parse_host(text: str | None) -> str | None:
    """Brokers compare addresses as texts, and look up no name."""
    if text is None or text == WILDCARD:
        return text
    try:
        ip_address(text)
    except ValueError:
        raise usage_error(
            f"--host takes the IP address of a client, not {text!r}: brokers look up no names"
        ) from None
    return text


def _dashed(code: Operation | ResourceType) -> str:
    return code.name.lower().replace("_", "-")
