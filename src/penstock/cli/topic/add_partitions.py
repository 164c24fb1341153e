"""`penstock topic add-partitions`: more partitions for a topic, never fewer."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.access import Access
from penstock.cli.errors import CliError
from penstock.cli.kafka import Cluster, NewPartitions
from penstock.cli.options import (
    Format,
    OutputFormat,
    TopicName,
)
from penstock.cli.output import print_json


def add_partitions(
    access: Access,
    name: TopicName,
    total: Annotated[
        int,
        typer.Argument(
            metavar="TOTAL", min=1, help="How many partitions the topic shall have in all."
        ),
    ],
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Grow the topic NAME to TOTAL partitions; keys may move to other partitions from then on."""
    cluster = Cluster(access)
    admin = cluster.admin()
    present = len(cluster.topic(admin, name).partitions)
    if total <= present:
        raise CliError(
            f"topic {name!r} has {present} partitions and can only grow:"
            f" give a TOTAL above {present}"
        )
    futures = admin.create_partitions(
        [NewPartitions(name, total)],
        operation_timeout=cluster.timeout_s,
        request_timeout=cluster.timeout_s,
    )
    cluster.wait(futures[name], f"add partitions to {name!r}")
    if output_format is Format.JSON:
        print_json({"topic": name, "partitions_before": present, "partitions": total})
    else:
        print(f"topic {name} now has {total} partitions (before: {present})")
