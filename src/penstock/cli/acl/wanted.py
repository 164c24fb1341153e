"""Which ACLs `create` is to make, from its options. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, ClassVar, Self

import typer

from penstock.auth.acl_rules import acl_fault
from penstock.auth.roles import PRESETS, preset
from penstock.auth.types import WILDCARD, Acl, PatternType, PermissionType, ResourceType
from penstock.cli.acl.options import (
    ACL_OPTIONS,
    RESOURCE_OPTIONS,
    RESOURCES_TEXT,
    parse_host,
    parse_operations,
    permission_of,
    principals_of,
    require_asked_for,
    resources_of,
)
from penstock.cli.errors import usage_error
from penstock.cli.options import OptionGroup

Preset = Annotated[
    str | None,
    typer.Option(
        "--preset", metavar="|".join(PRESETS), help="The ACLs of a ready role, for each principal."
    ),
]
Prefix = Annotated[
    str | None,
    typer.Option(
        "--prefix",
        metavar="TEXT",
        help="With --preset developer: what the names of its topics, groups and transactional ids"
        " begin with.",
    ),
]
_BY_HAND = ("operations", "allow", "deny", "prefixed", *RESOURCE_OPTIONS)
"""The options that a preset takes the place of."""
_ANYBODY = "anybody"
"""The role whose ACLs a preset is asked for; each principal then takes its place."""


@dataclass(frozen=True)
class Wanted(OptionGroup):
    acls: tuple[Acl, ...]

    OPTIONS: ClassVar[Mapping[str, tuple[Any, Any]]] = {
        **ACL_OPTIONS,
        "preset_name": (Preset, None),
        "prefix": (Prefix, None),
    }

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> Self:
        principals = principals_of(options)
        if not principals:
            raise usage_error("an ACL is for somebody: add --principal User:NAME or --role NAME")
        host = parse_host(options["host"]) or WILDCARD
        acls = _of_preset(options) if options["preset_name"] else _by_hand(options)
        found = [acl._replace(principal=p, host=host) for p in principals for acl in acls]
        for acl in found:
            if fault := acl_fault(acl):
                raise usage_error(fault)
        return cls(tuple(found))


def _of_preset(options: Mapping[str, Any]) -> list[Acl]:
    if any(options[name] for name in _BY_HAND):
        raise usage_error(
            "--preset says which operations on which resources: leave out --allow, --deny,"
            " --operation, --prefixed and the resources"
        )
    try:
        return list(preset(options["preset_name"], _ANYBODY, options["prefix"] or ""))
    except ValueError as e:
        advice = "; add --prefix" if options["preset_name"] == "developer" else ""
        raise usage_error(f"{e}{advice}") from None


def _by_hand(options: Mapping[str, Any]) -> list[Acl]:
    """Without the principal, which is put in later."""
    if options["prefix"] is not None:
        raise usage_error("--prefix goes with --preset developer; beside --topic use --prefixed")
    permission = permission_of(options)
    if permission is PermissionType.ANY:
        raise usage_error("an ACL allows or denies: add --allow or --deny, or use --preset")
    operations = parse_operations(options["operations"] or ())
    if not operations:
        raise usage_error("an ACL is for an operation: add --operation, as --operation read,write")
    resources = resources_of(options)
    if not resources:
        raise usage_error(f"an ACL is about a resource: add {RESOURCES_TEXT}")
    found = []
    for (kind, name), operation in product(resources, operations):
        require_asked_for(operation, kind)
        pattern = _pattern(options, kind, name)
        found.append(Acl(kind, name, pattern, "", WILDCARD, operation, permission))
    return found


def _pattern(options: Mapping[str, Any], kind: ResourceType, name: str) -> PatternType:
    if not options["prefixed"]:
        return PatternType.LITERAL
    if kind is ResourceType.CLUSTER:
        raise usage_error("the cluster has one name: leave out --prefixed or --cluster")
    if name == WILDCARD:
        raise usage_error(
            "with --prefixed, * is the beginning of names that begin with *: for every name give"
            " * without --prefixed"
        )
    return PatternType.PREFIXED
