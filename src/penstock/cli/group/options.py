"""Arguments and options that several group commands share, and how they are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from penstock.cli.errors import usage_error

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Id of the group.")]
GroupNames = Annotated[list[str], typer.Argument(metavar="GROUP", help="Ids of the groups.")]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC[:P,P...]",
        help="Only this topic, or only these partitions of it; may be repeated.",
    ),
]


def parse_topics(items: Iterable[str]) -> dict[str, set[int] | None]:
    """Topics with the partitions that were named; None stands for all of them.

    A topic's name has no colon, so the first one ends it.
    """
    chosen: dict[str, set[int] | None] = {}
    for item in items:
        topic, colon, numbers = item.partition(":")
        parts = numbers.split(",")
        if not topic or (colon and not all(part.isdecimal() for part in parts)):
            raise usage_error(
                f"{item!r} is not a topic: write TOPIC, or TOPIC:0,1 for some partitions of it"
            )
        before = chosen.get(topic, set())
        if not colon or before is None:
            chosen[topic] = None
        else:
            chosen[topic] = before | {int(part) for part in parts}
    return chosen
