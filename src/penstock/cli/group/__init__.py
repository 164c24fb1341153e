"""`penstock group VERB`: one module per verb."""

from __future__ import annotations

import typer


def build() -> typer.Typer:
    """The group of commands about consumer groups."""
    from penstock.cli.group import delete, delete_offsets, describe, list_groups, seek

    group = typer.Typer(
        help="See consumer groups, move them in their topics, remove them.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.command("list")(list_groups.list_groups)
    group.command("describe")(describe.describe)
    group.command("seek")(seek.seek)
    group.command("delete")(delete.delete)
    group.command("delete-offsets")(delete_offsets.delete_offsets)
    return group
