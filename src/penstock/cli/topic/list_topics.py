"""`penstock topic list`: the topics of the cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.access import Access
from penstock.cli.kafka import Cluster
from penstock.cli.options import (
    Format,
    OutputFormat,
)
from penstock.cli.output import print_json, print_table, remark

INTERNAL_PREFIX = "__"


def list_topics(
    access: Access,
    internal: Annotated[
        bool, typer.Option("--internal", help="Show the cluster's own topics (__name) too.")
    ] = False,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """List topics with their numbers of partitions and replicas."""
    cluster = Cluster(access)
    rows = [
        (
            name,
            len(topic.partitions),
            max((len(p.replicas) for p in topic.partitions.values()), default=0),
        )
        for name, topic in sorted(cluster.topics(cluster.admin()).items())
        if internal or not name.startswith(INTERNAL_PREFIX)
    ]
    if output_format is Format.JSON:
        print_json([{"topic": t, "partitions": p, "replicas": r} for t, p, r in rows])
    elif rows:
        print_table(("topic", "partitions", "replicas"), rows)
    else:
        remark("no topics yet: create one with `penstock topic create NAME`")
