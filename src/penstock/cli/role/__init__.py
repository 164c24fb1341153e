"""`penstock role VERB`: one module per verb, but for those that only differ in a word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.cli.lazy import LazyGroup, Verb


class RoleGroup(LazyGroup):
    """The commands about roles."""

    verbs: ClassVar[Mapping[str, Verb]] = {
        "list": Verb(
            "penstock.cli.role.show:list_roles",
            "List the roles, and how many members each has.",
        ),
        "describe": Verb(
            "penstock.cli.role.show:describe",
            "Show the members of roles, and what they may do.",
        ),
        "create": Verb(
            "penstock.cli.role.change:create",
            "Create a role, with members if they are named.",
        ),
        "delete": Verb(
            "penstock.cli.role.change:delete",
            "Delete a role, and the ACLs that are its rights.",
        ),
        "add-member": Verb(
            "penstock.cli.role.change:add_member",
            "Make principals members of a role.",
        ),
        "remove-member": Verb(
            "penstock.cli.role.change:remove_member",
            "Let principals be members of a role no more.",
        ),
    }
