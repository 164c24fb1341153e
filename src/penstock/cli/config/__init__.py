"""`penstock config VERB`: settings of brokers, of the cluster, of groups, of topics, and of
subscriptions to clients' metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.cli.lazy import LazyGroup, Verb


class ConfigGroup(LazyGroup):
    """The commands about settings."""

    verbs: ClassVar[Mapping[str, Verb]] = {
        "describe": Verb(
            "penstock.cli.config.show:describe",
            "Show the settings of RESOURCE that are not at their defaults, with where each comes"
            " from.",
        ),
        "get": Verb(
            "penstock.cli.config.show:get",
            "Show each setting KEY of RESOURCE: the value in force, and what lies beneath it.",
        ),
        "set": Verb(
            "penstock.cli.config.change:set_values",
            "Set settings of RESOURCE; what is not named stays as it is.",
        ),
        "unset": Verb(
            "penstock.cli.config.change:unset",
            "Take settings of RESOURCE away, so that what lies beneath counts again.",
        ),
    }
