"""`penstock txn VERB`: one module per verb."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.cli.lazy import LazyGroup, Verb


class TxnGroup(LazyGroup):
    """The commands about transactions."""

    verbs: ClassVar[Mapping[str, Verb]] = {
        "list": Verb(
            "penstock.cli.txn.list_transactions:list_transactions",
            "List transactional ids with coordinator, producer id and state; or, with"
            " --hanging, the transactions that hold partitions back and will not end by"
            " themselves.",
        ),
        "describe": Verb(
            "penstock.cli.txn.describe:describe",
            "Show state, producer id and epoch, timeout, start, age and partitions of each ID.",
        ),
        "abort": Verb(
            "penstock.cli.txn.abort:abort",
            "Abort the open transaction of ID and fence its producer; or end, in one partition,"
            " a transaction that hangs.",
        ),
    }
