"""`penstock txn VERB`: one module per verb."""

from __future__ import annotations

import typer


def build() -> typer.Typer:
    """The group of commands about transactions."""
    from penstock.cli.txn import abort, describe, list_transactions

    group = typer.Typer(
        help="See transactions, find those that hang, end them.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.command("list")(list_transactions.list_transactions)
    group.command("describe")(describe.describe)
    group.command("abort")(abort.abort)
    return group
