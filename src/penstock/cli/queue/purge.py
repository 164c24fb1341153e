"""`penstock queue purge`: what a share group has not done is done.

The group begins again at the end of each partition; Kafka's request for it (AlterShareGroupOffsets)
wants a group without members. The topic keeps its messages, other groups are not touched, and dead
letters stay.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from penstock.cli.access import Access
from penstock.cli.cluster.asking import check
from penstock.cli.errors import CliError, usage_error
from penstock.cli.group.options import GroupName, Topics, parse_topics
from penstock.cli.offsets import Offsets
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import plural, print_json, print_table
from penstock.cli.queue.queues import Queues
from penstock.kafka.brokers import GROUP, Brokers
from penstock.kafka.offsets import Partition
from penstock.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)

ALTER_VERSION = 0


def purge(
    access: Access,
    name: GroupName,
    topics: Topics = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Call everything done that GROUP, which must have no members, has not done.

    A person is asked to type the name of the group.
    """
    if not (yes or dry_run) and not sys.stdin.isatty():
        raise usage_error(f"purging {name} needs a yes: nobody is here to ask, so add --yes")
    chosen = parse_topics(topics or ())
    queues = Queues(access)
    group = queues.members(queues.require(name))
    if group.members and not dry_run:
        raise CliError(
            f"cannot purge {name!r}: it has {plural(len(group.members), 'member')}, who would go"
            f" on; stop them, wait until `penstock queue describe {name}` shows Empty, and try"
            " again, or drop the messages for all groups with `penstock topic trim`"
        )
    places = [
        place
        for place in group.places
        if not chosen or (place[0] in chosen and place[1] in (chosen[place[0]] or {place[1]}))
    ]
    for topic in chosen:
        if not any(place[0] == topic for place in places):
            raise CliError(
                f"group {name!r} does not stand in topic {topic!r}:"
                f" see `penstock queue describe {name}`"
            )
    ends = Offsets(queues.cluster, way_out="choose others with --topic TOPIC:P").ends(places)
    rows = [_row(place, group.lags.get(place), ends[place]) for place in places]
    if not dry_run and rows:
        _confirm(name, rows, yes=yes)
        _move(queues, name, ends)
    if output_format is Format.JSON:
        print_json({"group": name, "dry_run": dry_run, "partitions": rows})
        return
    undone = sum(row["purged"] or 0 for row in rows)
    print(f"{'would purge' if dry_run else 'purged'} {plural(undone, 'message')} of {name}")
    if rows:
        print_table(list(rows[0]), [["-" if c is None else c for c in r.values()] for r in rows])


def _row(place: Partition, lag: int | None, end: int) -> dict[str, Any]:
    return {"topic": place[0], "partition": place[1], "purged": lag, "start": end}


def _confirm(name: str, rows: list[dict[str, Any]], *, yes: bool) -> None:
    if yes:
        return
    undone = sum(row["purged"] or 0 for row in rows)
    question = (
        f"{plural(undone, 'message')} will never be delivered to {name}; type its name to go on"
    )
    if typer.prompt(question, err=True, default="", show_default=False) != name:
        raise CliError(f"nothing was purged: type {name} to purge it")


def _move(queues: Queues, name: str, starts: Mapping[Partition, int]) -> None:
    doing = f"purge {name!r}"
    by_topic: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for (topic, partition), start in starts.items():
        part = AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=start)
        by_topic.setdefault(topic, []).append(part)
    request = AlterShareGroupOffsetsRequest(
        group_id=name,
        topics=[
            AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=parts)
            for topic, parts in by_topic.items()
        ],
    )
    access = queues.cluster.access
    with Brokers(access.addresses, access.timeout_s, access.client) as brokers:
        answer = brokers.ask_coordinator(
            GROUP,
            name,
            request,
            AlterShareGroupOffsetsResponse,
            ALTER_VERSION,
            lambda found: [found.error_code],
        )
    check(answer.error_code, answer.error_message, doing)
    for told in answer.responses:
        for one in told.partitions:
            at = f"{told.topic_name}-{one.partition_index}"
            check(one.error_code, one.error_message, f"{doing} in {at}")
