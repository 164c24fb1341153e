"""`penstock topic VERB`: one module per verb."""

from __future__ import annotations

import typer


def build() -> typer.Typer:
    """The group of topic commands."""
    from penstock.cli.topic import (
        add_partitions,
        alter,
        consume,
        create,
        delete,
        describe,
        list_topics,
        produce,
        trim,
    )

    group = typer.Typer(
        help="Make, change, fill and read topics.", no_args_is_help=True, rich_markup_mode=None
    )
    group.command("create")(create.create)
    group.command("list")(list_topics.list_topics)
    group.command("describe")(describe.describe)
    group.command("alter")(alter.alter)
    group.command("add-partitions")(add_partitions.add_partitions)
    group.command("trim")(trim.trim)
    group.command("delete")(delete.delete)
    group.command("produce")(produce.produce)
    group.command("consume")(consume.consume)
    return group
