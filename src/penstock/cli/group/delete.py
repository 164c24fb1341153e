"""`penstock group delete`: remove groups and their offsets."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock.cli.access import Access
from penstock.cli.errors import CliError, usage_error
from penstock.cli.group.groups import Groups
from penstock.cli.group.options import GroupNames
from penstock.cli.kafka import Cluster
from penstock.cli.options import (
    Format,
    OutputFormat,
)
from penstock.cli.output import print_json


def delete(
    access: Access,
    names: GroupNames,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Delete each GROUP, which must have no members, with its committed offsets."""
    names = list(dict.fromkeys(names))
    if not yes and not sys.stdin.isatty():
        raise usage_error(
            f"deleting {', '.join(names)} needs a yes: nobody is here to ask, so add --yes"
        )
    groups = Groups(Cluster(access))
    groups.require(names)
    question = f"Delete {', '.join(names)} and its committed offsets?"
    if not yes and not typer.confirm(question, err=True):
        raise CliError("nothing was deleted: answer y to delete")
    for name in names:
        groups.delete(name)
        if output_format is Format.TEXT:
            print(f"deleted group {name}")
    if output_format is Format.JSON:
        print_json([{"group": name, "deleted": True} for name in names])
