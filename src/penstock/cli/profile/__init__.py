"""`penstock profile VERB`: settings by which clusters are reached, stored under names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.cli.lazy import LazyGroup, Verb


class ProfileGroup(LazyGroup):
    """The commands about profiles."""

    verbs: ClassVar[Mapping[str, Verb]] = {
        "list": Verb(
            "penstock.cli.profile.show:list_profiles",
            "List the profiles; the one in use has a star.",
        ),
        "show": Verb(
            "penstock.cli.profile.show:show",
            "Show the settings of a profile, without its secrets.",
        ),
        "set": Verb(
            "penstock.cli.profile.change:set_profile",
            "Make a profile or change its settings; what is not named stays as it is.",
        ),
        "use": Verb(
            "penstock.cli.profile.change:use",
            "Have all commands use a profile where they name no other.",
        ),
        "delete": Verb(
            "penstock.cli.profile.change:delete",
            "Delete profiles.",
        ),
    }
