"""`penstock quota VERB`: one module per verb, but for those that only differ in a word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.cli.lazy import LazyGroup, Verb


class QuotaGroup(LazyGroup):
    """The commands about quotas of clients."""

    verbs: ClassVar[Mapping[str, Verb]] = {
        "list": Verb(
            "penstock.cli.quota.show:list_quotas",
            "List the quotas of users, clients and addresses.",
        ),
        "describe": Verb(
            "penstock.cli.quota.show:describe",
            "Say which quotas hold for a user, a client or an address, and who shares them.",
        ),
        "set": Verb(
            "penstock.cli.quota.change:set_quotas",
            "Set quotas of a user, a client, both, or an address.",
        ),
        "unset": Verb(
            "penstock.cli.quota.change:unset",
            "Take quotas away.",
        ),
    }
