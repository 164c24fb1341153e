"""`penstock role create`, `delete`, `add-member`, `remove-member`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from penstock.cli.access import Access
from penstock.cli.cluster.asking import Brokers
from penstock.cli.cluster.options import Yes, confirm, require_yes
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import plural, print_json
from penstock.cli.role.roles import Members, RoleName, alter, missing, read
from penstock.wire.messages.alter_role import RoleAction

FirstMembers = Annotated[
    list[str] | None,
    typer.Option("--member", metavar="TYPE:NAME", help="A first member; may be repeated."),
]


def create(
    name: RoleName,
    access: Access,
    member: FirstMembers = None,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Create a role, with members if they are named.

    What it may do are ACLs: `penstock acl create --role NAME`, also by a preset.
    """
    members = member or []
    alter(Brokers(access), RoleAction.CREATE, name, members, f"create the role {name}")
    _done("created", name, members, output_format)


def delete(
    name: RoleName, access: Access, yes: Yes = False, output_format: OutputFormat = Format.TEXT
) -> None:
    """Delete a role, and the ACLs that are its rights."""
    require_yes(yes, "deleting a role")
    brokers = Brokers(access)
    members = read(brokers, [name]).get(name)
    if members is None:
        raise missing(name)
    confirm(yes, f"Delete the role {name} with {plural(len(members), 'member')} and its ACLs?")
    alter(brokers, RoleAction.DELETE, name, (), f"delete the role {name}")
    _done("deleted", name, members, output_format)


def add_member(
    name: RoleName, members: Members, access: Access, output_format: OutputFormat = Format.TEXT
) -> None:
    """Make principals members of a role.

    Who is one already stays one.
    """
    doing = f"add members to the role {name}"
    alter(Brokers(access), RoleAction.ADD_MEMBERS, name, members, doing)
    _done("added", name, members, output_format)


def remove_member(
    name: RoleName, members: Members, access: Access, output_format: OutputFormat = Format.TEXT
) -> None:
    """Let principals be members of a role no more.

    Who is none stays so.
    """
    doing = f"remove members of the role {name}"
    alter(Brokers(access), RoleAction.REMOVE_MEMBERS, name, members, doing)
    _done("removed", name, members, output_format)


def _done(what: str, name: str, members: Sequence[str], output_format: Format) -> None:
    if output_format is Format.JSON:
        print_json({"done": what, "role": name, "members": list(members)})
    else:
        print(f"{what}: role {name}" + (f", {', '.join(members)}" if members else ""))
