"""`penstock token list`: the delegation tokens, without their secrets."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.access import Access
from penstock.cli.cluster.asking import Brokers
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import print_json, print_table
from penstock.cli.token.tokens import read, time_text

Owners = Annotated[
    list[str] | None,
    typer.Option(
        "--owner", metavar="TYPE:NAME", help="Only tokens of this owner; may be repeated."
    ),
]


def list_tokens(
    access: Access, owner: Owners = None, output_format: OutputFormat = Format.TEXT
) -> None:
    """List the delegation tokens that you may see, without their secrets."""
    found = read(Brokers(access), owner)
    if output_format is Format.JSON:
        print_json([token.json() for token in found])
        return
    rows = [
        (
            token.id,
            token.owner,
            ", ".join(token.renewers),
            time_text(token.expires_ms),
            time_text(token.ends_ms),
        )
        for token in found
    ]
    print_table(("id", "owner", "renewers", "expires", "ends"), rows)
