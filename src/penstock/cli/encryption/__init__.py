"""`penstock encryption VERB`: one module per verb; they work on a node's folder and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.cli.lazy import LazyGroup, Verb


class EncryptionGroup(LazyGroup):
    """The commands about the keys of encrypted data."""

    verbs: ClassVar[Mapping[str, Verb]] = {
        "status": Verb(
            "penstock.cli.encryption.status:status",
            "Show which versions of which keys a node's data needs; exit code 3 when one of them"
            " cannot be had.",
        ),
        "new-key": Verb(
            "penstock.cli.encryption.new_key:new_key",
            "Make a new version of KEY, or its first one, where a node's settings say that keys"
            " are.",
        ),
        "rewrap": Verb(
            "penstock.cli.encryption.rewrap:rewrap",
            "Have all data keys of a stopped node wrapped by the newest versions; the data stays as"
            " it is. A running node does so by itself.",
        ),
    }
