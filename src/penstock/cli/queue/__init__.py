"""`penstock queue VERB`: one module per verb."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.cli.lazy import LazyGroup, Verb


class QueueGroup(LazyGroup):
    """The commands about share groups as queues."""

    verbs: ClassVar[Mapping[str, Verb]] = {
        "list": Verb(
            "penstock.cli.queue.list_queues:list_queues",
            "List the share groups: what is available, locked, parked, dead, and how far behind"
            " each is.",
        ),
        "describe": Verb(
            "penstock.cli.queue.describe:describe",
            "Show where GROUP stands in each partition, and with --locks who holds what.",
        ),
        "peek": Verb(
            "penstock.cli.queue.peek:peek",
            "Show the next messages of GROUP, or its dead letters, without taking them.",
        ),
        "redrive": Verb(
            "penstock.cli.queue.redrive:redrive",
            "Make dead letters the work of GROUP again: in place, or as copies in a retry topic.",
        ),
        "purge": Verb(
            "penstock.cli.queue.purge:purge",
            "Call everything done that GROUP, which must have no members, has not done.",
        ),
    }
