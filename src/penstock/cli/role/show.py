"""`penstock role list` and `describe`: the roles, their members, their rights."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.auth.acls import AclFilter
from penstock.auth.principal import ROLE
from penstock.auth.types import Acl
from penstock.cli.access import Access
from penstock.cli.acl import acls
from penstock.cli.acl.show import acl_json, print_acls
from penstock.cli.cluster.asking import Brokers
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import plural, print_json, print_table, title
from penstock.cli.role.roles import missing, read

RoleNames = Annotated[list[str], typer.Argument(metavar="NAME", help="Names of the roles.")]


def list_roles(access: Access, output_format: OutputFormat = Format.TEXT) -> None:
    """List the roles, and how many members each has."""
    found = read(Brokers(access))
    if output_format is Format.JSON:
        print_json([{"name": name, "members": members} for name, members in found.items()])
    else:
        rows = [(name, len(members)) for name, members in found.items()]
        print_table(("role", "members"), rows)


def describe(names: RoleNames, access: Access, output_format: OutputFormat = Format.TEXT) -> None:
    """Show the members of roles, and what they may do.

    Members by a claim of their token are not known here.
    """
    brokers = Brokers(access)
    found = read(brokers, names)
    for name in names:
        if name not in found:
            raise missing(name)
    rights = {name: _rights(brokers, name) for name in found}
    if output_format is Format.JSON:
        print_json(
            [
                {"name": name, "members": members, "acls": [acl_json(a) for a in rights[name]]}
                for name, members in found.items()
            ]
        )
        return
    for name, members in found.items():
        title(f"{name}: {plural(len(members), 'member')}")
        for member in members:
            print(member)
        print_acls(rights[name])


def _rights(brokers: Brokers, name: str) -> list[Acl]:
    """None where there is no authorizer."""
    try:
        return acls.read(brokers, [AclFilter(principal=f"{ROLE}:{name}")])
    except acls.NoAuthorizer:
        return []
