"""`penstock topic trim`: drop the oldest messages of a topic."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from confluent_kafka import TopicPartition

from penstock.cli.access import Access
from penstock.cli.errors import usage_error
from penstock.cli.kafka import Cluster, pick_partitions
from penstock.cli.offsets import Offsets
from penstock.cli.options import (
    Format,
    OutputFormat,
    TopicName,
)
from penstock.cli.output import print_json, print_table
from penstock.cli.values import parse_time_ms
from penstock.kafka.offsets import Partition


def trim(
    access: Access,
    name: TopicName,
    before_offset: Annotated[
        int | None,
        typer.Option("--before-offset", min=0, metavar="N", help="Drop messages below offset N."),
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            "--before",
            metavar="TIME",
            help="Drop messages older than TIME (ISO 8601, -1h, or epoch ms).",
        ),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep", min=0, metavar="N", help="Keep the last N offsets of each partition."
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, help="Only this partition; all if left out.")
    ] = None,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Drop the oldest messages of the topic NAME; give exactly one of --before-offset, --before
    and --keep.
    """
    if sum(option is not None for option in (before_offset, before, keep)) != 1:
        raise usage_error("give exactly one of --before-offset, --before and --keep")
    before_ms = None if before is None else parse_time_ms(before, time.time_ns() // 1_000_000)
    cluster = Cluster(access)
    admin = cluster.admin()
    partitions = pick_partitions(name, cluster.topic(admin, name), partition)
    limits = _limits(cluster, [(name, p) for p in partitions], before_offset, before_ms, keep)
    wanted = [
        TopicPartition(name, p, offset) for p, (start, offset) in limits.items() if offset > start
    ]
    low = {p: start for p, (start, _) in limits.items()}
    if wanted:
        futures = admin.delete_records(
            wanted, request_timeout=cluster.timeout_s, operation_timeout=cluster.timeout_s
        )
        for tp, future in futures.items():
            low[tp.partition] = cluster.wait(
                future, f"trim {name!r} partition {tp.partition}"
            ).low_watermark
    rows = [(p, start, low[p], low[p] - start) for p, (start, _) in sorted(limits.items())]
    if output_format is Format.JSON:
        print_json(
            [
                {
                    "topic": name,
                    "partition": p,
                    "start_before": old,
                    "start_offset": new,
                    "dropped": dropped,
                }
                for p, old, new, dropped in rows
            ]
        )
    else:
        print_table(("partition", "start before", "start now", "dropped"), rows)


def _limits(
    cluster: Cluster,
    places: list[Partition],
    before_offset: int | None,
    before_ms: int | None,
    keep: int | None,
) -> dict[int, tuple[int, int]]:
    """Per partition its start offset and the first offset to keep, which lies within the log."""
    offsets = Offsets(cluster, way_out="trim the others one by one with --partition")
    starts, ends = offsets.starts(places), offsets.ends(places)
    if before_ms is not None:
        timed = offsets.at_time(places, before_ms)
        wanted = {p: ends[p] if offset < 0 else offset for p, offset in timed.items()}
    elif keep is not None:
        wanted = {p: ends[p] - keep for p in places}
    else:
        wanted = dict.fromkeys(places, before_offset or 0)
    return {p[1]: (starts[p], min(max(wanted[p], starts[p]), ends[p])) for p in places}
