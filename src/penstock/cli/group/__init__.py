"""`penstock group VERB`: one module per verb."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.cli.lazy import LazyGroup, Verb


class GroupGroup(LazyGroup):
    """The commands about consumer groups."""

    verbs: ClassVar[Mapping[str, Verb]] = {
        "list": Verb(
            "penstock.cli.group.list_groups:list_groups",
            "List the groups of all kinds with their type, the protocol of their members and"
            " state.",
        ),
        "describe": Verb(
            "penstock.cli.group.describe:describe",
            "Show the state, the members and, per partition, the owner and the lag of each GROUP.",
        ),
        "seek": Verb(
            "penstock.cli.group.seek:seek",
            "Move GROUP, which must have no members, in the topics that it has read or in --topic.",
        ),
        "delete": Verb(
            "penstock.cli.group.delete:delete",
            "Delete each GROUP, which must have no members, with its committed offsets.",
        ),
        "delete-offsets": Verb(
            "penstock.cli.group.delete_offsets:delete_offsets",
            "Delete the offsets that GROUP has committed in a topic that no member of it reads.",
        ),
    }
