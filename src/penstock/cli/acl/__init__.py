"""`penstock acl VERB`: one module per verb."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.cli.lazy import LazyGroup, Verb


class AclGroup(LazyGroup):
    """The commands about ACLs."""

    verbs: ClassVar[Mapping[str, Verb]] = {
        "list": Verb(
            "penstock.cli.acl.list_acls:list_acls",
            "List the ACLs, all of them or those that the options select.",
        ),
        "create": Verb(
            "penstock.cli.acl.create:create",
            "Create ACLs: for each principal, on each resource, for each operation; or those of a"
            " preset.",
        ),
        "delete": Verb(
            "penstock.cli.acl.delete:delete",
            "Delete the ACLs that the options select, after showing them.",
        ),
        "check": Verb(
            "penstock.cli.acl.check:check",
            "Say whether a principal may do something, and which ACL decides; exit code 1 if it is"
            " denied.",
        ),
    }
