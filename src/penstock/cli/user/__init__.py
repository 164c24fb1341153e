"""`penstock user VERB`: one module per verb."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.cli.lazy import LazyGroup, Verb


class UserGroup(LazyGroup):
    """The commands about users."""

    verbs: ClassVar[Mapping[str, Verb]] = {
        "list": Verb(
            "penstock.cli.user.list_users:list_users",
            "List the users that have a password, and by which mechanisms.",
        ),
        "create": Verb(
            "penstock.cli.user.create:create",
            "Create a user with a password.",
        ),
        "passwd": Verb(
            "penstock.cli.user.passwd:passwd",
            "Give a user another password: for the mechanisms that the user has, or for those "
            "named.",
        ),
        "delete": Verb(
            "penstock.cli.user.delete:delete",
            "Delete users: with their passwords nobody logs in any more.",
        ),
    }
