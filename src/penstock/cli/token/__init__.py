"""`penstock token VERB`: the verbs are in two modules, what shows and what changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.cli.lazy import LazyGroup, Verb


class TokenGroup(LazyGroup):
    """The commands about delegation tokens."""

    verbs: ClassVar[Mapping[str, Verb]] = {
        "list": Verb(
            "penstock.cli.token.show:list_tokens",
            "List the delegation tokens that you may see, without their secrets.",
        ),
        "create": Verb(
            "penstock.cli.token.change:create",
            "Create a delegation token and print it; it is the one time that the secret is shown.",
        ),
        "renew": Verb(
            "penstock.cli.token.change:renew",
            "Let a delegation token be used for longer, up to its end.",
        ),
        "expire": Verb(
            "penstock.cli.token.change:expire",
            "End a delegation token, at once or in a while.",
        ),
    }
