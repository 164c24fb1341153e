"""`penstock topic delete`: remove topics and their data."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock.cli.access import Access
from penstock.cli.errors import CliError, usage_error
from penstock.cli.kafka import Cluster
from penstock.cli.options import (
    Format,
    OutputFormat,
    TopicNames,
)
from penstock.cli.output import print_json


def delete(
    access: Access,
    names: TopicNames,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Delete each topic NAME with all of its messages."""
    names = list(dict.fromkeys(names))
    if not yes and not sys.stdin.isatty():
        raise usage_error(
            f"deleting {', '.join(names)} needs a yes: nobody is here to ask, so add --yes"
        )
    cluster = Cluster(access)
    admin = cluster.admin()
    known = cluster.topics(admin)
    for name in names:
        if name not in known:
            raise cluster.missing_topic(name, known)
    question = f"Delete {', '.join(names)} and all messages in it?"
    if not yes and not typer.confirm(question, err=True):
        raise CliError("nothing was deleted: answer y to delete")
    futures = admin.delete_topics(
        names, operation_timeout=cluster.timeout_s, request_timeout=cluster.timeout_s
    )
    for name in names:
        cluster.wait(futures[name], f"delete topic {name!r}")
        if output_format is Format.TEXT:
            print(f"deleted topic {name}")
    if output_format is Format.JSON:
        print_json([{"topic": name, "deleted": True} for name in names])
