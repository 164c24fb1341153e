"""Which of the ACLs that are there `list` and `delete` mean. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, ClassVar, Self

import typer

from penstock.auth.acls import AclFilter
from penstock.auth.types import Operation, PatternType, ResourceType
from penstock.cli.acl.options import (
    ACL_OPTIONS,
    RESOURCES_TEXT,
    Resource,
    parse_host,
    parse_operations,
    permission_of,
    principals_of,
    resources_of,
)
from penstock.cli.errors import usage_error
from penstock.cli.options import OptionGroup

Match = Annotated[
    bool,
    typer.Option(
        "--match",
        help="All that applies to the names of resources: by the name, a beginning of it, or *.",
    ),
]


@dataclass(frozen=True)
class Selection(OptionGroup):
    filters: tuple[AclFilter, ...]
    """An ACL that one of them matches is meant."""

    OPTIONS: ClassVar[Mapping[str, tuple[Any, Any]]] = {**ACL_OPTIONS, "match": (Match, False)}

    @property
    def is_everything(self) -> bool:
        return self.filters == (AclFilter(),)

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> Self:
        resources = resources_of(options)
        pattern = _pattern(options, resources)
        permission = permission_of(options)
        host = parse_host(options["host"])
        meant: list[tuple[ResourceType, str | None]] = list(resources)
        principals: list[str | None] = list(principals_of(options))
        filters = [
            AclFilter(kind, name, pattern, principal, host, operation, permission)
            for (kind, name), principal, operation in product(
                meant or [(ResourceType.ANY, None)],
                principals or [None],
                parse_operations(options["operations"] or ()) or [Operation.ANY],
            )
        ]
        return cls(tuple(filters))


def _pattern(options: Mapping[str, Any], resources: list[Resource]) -> PatternType:
    """A name is meant as it is, as in Kafka's own tool, where nothing else is said."""
    if options["prefixed"] and options["match"]:
        raise usage_error("--prefixed and --match say different things: give one of them")
    if options["match"] and not resources:
        raise usage_error(f"--match is about the name of a resource: add {RESOURCES_TEXT}")
    if options["match"]:
        return PatternType.MATCH
    if options["prefixed"]:
        return PatternType.PREFIXED
    return PatternType.LITERAL if resources else PatternType.ANY
