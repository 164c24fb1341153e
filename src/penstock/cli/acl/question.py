"""May this principal do that, and why: the question of `check`, and its answer from ACLs. Pure.

What is not known of the brokers' settings becomes a doubt wherever it could turn the answer.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import typer

from penstock.auth.acls import DEFAULT_DENY, SUPER_USER, AclFilter, AclIndex, Decision
from penstock.auth.types import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
)
from penstock.cli.acl.options import (
    RESOURCE_OPTIONS,
    RESOURCES_TEXT,
    Host,
    Resource,
    parse_host,
    parse_operations,
    parse_principal,
    require_asked_for,
    resources_of,
    role_principals,
)
from penstock.cli.errors import usage_error
from penstock.cli.options import OptionGroup
from penstock.config.broker_security import STANDARD_AUTHORIZER

Asking = Annotated[
    str, typer.Option("--principal", metavar="TYPE:NAME", help="Who would do it, as User:ann.")
]
Memberships = Annotated[
    list[str] | None,
    typer.Option("--role", metavar="NAME", help="A role that the principal has; may be repeated."),
]
Doing = Annotated[
    str, typer.Option("--operation", metavar="NAME", help="What it would do, as read.")
]


@dataclass(frozen=True)
class Question(OptionGroup):
    principal: str
    roles: tuple[str, ...]
    """As principals."""
    operation: Operation
    resource: Resource
    host: str | None

    OPTIONS: ClassVar[Mapping[str, tuple[Any, Any]]] = {
        "principal": (Asking, inspect.Parameter.empty),
        "roles": (Memberships, None),
        "operation": (Doing, inspect.Parameter.empty),
        **RESOURCE_OPTIONS,
        "host": (Host, None),
    }

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> Self:
        operations = parse_operations([options["operation"]])
        resources = resources_of(options)
        if len(operations) != 1:
            raise usage_error("one operation is checked at a time: give --operation one name")
        if len(resources) != 1:
            raise usage_error(f"one resource is checked at a time: give one of {RESOURCES_TEXT}")
        require_asked_for(operations[0], resources[0].type)
        return cls(
            parse_principal(options["principal"]),
            tuple(role_principals(options["roles"] or ())),
            operations[0],
            resources[0],
            parse_host(options["host"]),
        )

    @property
    def names(self) -> tuple[str, ...]:
        return (self.principal, *self.roles)

    @property
    def filter(self) -> AclFilter:
        """All ACLs that are about the resource, whomever they name."""
        return AclFilter(self.resource.type, self.resource.name, PatternType.MATCH)


class BrokerSettings(NamedTuple):
    """What the brokers' settings say beside the ACLs; None where it is not told."""

    authorizer: str | None = None
    super_users: frozenset[str] | None = None
    allow_everyone_if_no_acl_found: bool | None = None


class Verdict(NamedTuple):
    decision: Decision
    about: int = 0
    """How many ACLs are about the resource, whomever they name."""
    doubts: tuple[str, ...] = ()
    """What could make it otherwise."""


def judge(question: Question, acls: Iterable[Acl], settings: BrokerSettings) -> Verdict:
    """`acls`: those that `question.filter` matches."""
    acls = list(acls)
    if question.principal in (settings.super_users or ()):
        decision = Decision(True, None, SUPER_USER)
        return Verdict(decision, len(acls), tuple(_other_authorizer(settings)))
    known = [acl for acl in acls if _is_known(acl)]
    index = AclIndex(allow_everyone_if_no_acl_found=bool(settings.allow_everyone_if_no_acl_found))
    for number, acl in enumerate(known):
        index.add(number.to_bytes(16, "big"), acl)
    host = question.host or WILDCARD
    decision = index.decide(question.names, host, question.operation, *question.resource)
    doubts = _other_authorizer(settings)
    if len(known) < len(acls):
        doubts.append("some ACLs are of a kind that this penstock does not know: upgrade it")
    if not decision.allowed:
        doubts += _denied_doubts(question, decision, settings, is_named=bool(acls))
    doubts += _host_doubts(question, known)
    return Verdict(decision, len(acls), tuple(doubts))


def _is_known(acl: Acl) -> bool:
    return (
        acl.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
        and acl.resource_type is not ResourceType.UNKNOWN
        and acl.operation is not Operation.UNKNOWN
        and acl.permission in (PermissionType.ALLOW, PermissionType.DENY)
    )


def _other_authorizer(settings: BrokerSettings) -> list[str]:
    if settings.authorizer in (None, "", STANDARD_AUTHORIZER):
        return []
    return [f"the brokers decide by {settings.authorizer}, for which ACLs may not be all"]


def _denied_doubts(
    question: Question, decision: Decision, settings: BrokerSettings, *, is_named: bool
) -> list[str]:
    doubts = []
    if settings.super_users is None:
        doubts.append(
            f"the brokers' super.users cannot be read: if {question.principal} is one, it is"
            " allowed"
        )
    no_acl = decision.reason == DEFAULT_DENY and not is_named
    if no_acl and settings.allow_everyone_if_no_acl_found is None:
        doubts.append(
            "the brokers' allow.everyone.if.no.acl.found cannot be read: if it is true, it is"
            " allowed, since no ACL is about this resource"
        )
    return doubts


def _host_doubts(question: Question, acls: Iterable[Acl]) -> list[str]:
    """Without a host, ACLs for certain hosts are left out; they are named."""
    names = (*question.names, WILDCARD_PRINCIPAL)
    hosts = sorted({a.host for a in acls if a.principal in names and a.host != WILDCARD})
    if question.host is not None or not hosts:
        return []
    return [f"ACLs for {', '.join(hosts)} do not count without --host"]
