"""`penstock group seek`: move a group that nobody uses to another place in its topics."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from penstock.cli.access import Access
from penstock.cli.errors import CliError, usage_error
from penstock.cli.group.groups import Groups, stop_members
from penstock.cli.group.options import GroupName, Topics, parse_topics
from penstock.cli.group.places import (
    Destination,
    Goal,
    parse_destination,
    read_csv,
    write_csv,
)
from penstock.cli.kafka import Cluster
from penstock.cli.offsets import Offsets
from penstock.cli.options import (
    Format,
    OutputFormat,
)
from penstock.cli.output import plural, print_json, print_table, remark
from penstock.kafka.offsets import Partition


def seek(
    access: Access,
    name: GroupName,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="earliest, latest, an offset, a shift (+N, -N), or a time (ISO 8601, -1h, epoch"
            " ms).",
        ),
    ] = None,
    from_csv: Annotated[
        str | None,
        typer.Option(
            "--from-csv", metavar="FILE", help="Offsets from lines of topic,partition,offset."
        ),
    ] = None,
    topics: Topics = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the change and leave the group as it is.")
    ] = False,
    export: Annotated[
        str | None,
        typer.Option(
            "--export",
            metavar="FILE",
            help="Write the offsets as they are before the change, for --from-csv.",
        ),
    ] = None,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Move GROUP, which must have no members, in the topics that it has read or in --topic."""
    if (to is None) == (from_csv is None) and not (export and to is None):
        raise usage_error("give --to PLACE or --from-csv FILE, one of them")
    goal = None if to is None else parse_destination(to, time.time_ns() // 1_000_000)
    listed = None if from_csv is None else read_csv(from_csv)
    chosen = parse_topics(topics or ())
    groups = Groups(Cluster(access))
    if not chosen and listed is None:
        groups.require([name], "see `penstock group list`, or make it by giving --topic too")
    now = groups.committed(name)
    places = _partitions(groups, name, chosen, now, listed)
    if export is not None:
        write_csv(export, {p: now[p] for p in places if p in now})
    offsets = Offsets(groups.cluster, way_out="choose other partitions with --topic TOPIC:P")
    if goal is not None:
        new = _clamped(offsets, _resolve(offsets, name, goal, places, now))
    elif listed is not None:
        new = _clamped(offsets, {p: listed[p] for p in places})
    else:
        new = {p: now[p] for p in places if p in now}
    _carry_out(groups, name, now, new, dry_run=dry_run, as_json=output_format is Format.JSON)


def _carry_out(
    groups: Groups,
    name: str,
    now: dict[Partition, int],
    new: dict[Partition, int],
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Refuses while the group is in use, shows the change, and then makes it."""
    changed = {p: offset for p, offset in new.items() if now.get(p) != offset}
    members = groups.member_count(name)
    if members and changed:
        refusal = f"group {name!r} has {plural(members, 'active member')}"
        if not dry_run:
            raise CliError(
                f"cannot move it: {refusal}, who would go on from where they are;"
                f" {stop_members(name)}"
            )
        remark(f"{refusal}: it could not be moved now")
    _show(now, new, as_json=as_json)
    if changed and not dry_run:
        groups.commit(name, changed)
    if not changed:
        remark("nothing is to be changed: the group is there already")
    elif dry_run:
        remark("nothing was changed: leave out --dry-run to move the group")
    else:
        remark(f"moved group {name} in {plural(len(changed), 'partition')}")


def _show(now: dict[Partition, int], new: dict[Partition, int], *, as_json: bool) -> None:
    rows = [(topic, p, now.get((topic, p)), new[topic, p]) for topic, p in sorted(new)]
    if as_json:
        columns = ("topic", "partition", "now", "new")
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        shown = [["-" if cell is None else cell for cell in row] for row in rows]
        print_table(("topic", "partition", "now", "new"), shown)


def _partitions(
    groups: Groups,
    name: str,
    chosen: dict[str, set[int] | None],
    now: dict[Partition, int],
    listed: dict[Partition, int] | None,
) -> list[Partition]:
    """The partitions to move, all of which exist: those of --topic, else of the file, else all that
    the group has committed.
    """
    known = groups.cluster.topics(groups.admin)
    named = listed if listed is not None else now
    for topic in chosen or {topic for topic, _ in named}:
        if topic not in known:
            raise groups.cluster.missing_topic(topic, known, "choose the topics with --topic")
    if not chosen:
        places = sorted(named)
    elif listed is not None:
        places = [p for p in sorted(listed) if p[0] in chosen and p[1] in (chosen[p[0]] or {p[1]})]
    else:
        places = [
            (t, p) for t, numbers in chosen.items() for p in sorted(numbers or known[t].partitions)
        ]
    for topic, partition in places:
        if partition not in known[topic].partitions:
            last = len(known[topic].partitions) - 1
            raise CliError(
                f"topic {topic!r} has no partition {partition}: give partitions from 0 to {last}"
            )
    if not places:
        raise CliError(f"group {name!r} has nothing to move: name a topic with --topic")
    return places


def _resolve(
    offsets: Offsets,
    name: str,
    goal: Destination,
    places: list[Partition],
    now: dict[Partition, int],
) -> dict[Partition, int]:
    if goal.goal is Goal.OFFSET:
        return dict.fromkeys(places, goal.value)
    if goal.goal is Goal.SHIFT:
        for topic, partition in places:
            if (topic, partition) not in now:
                raise CliError(
                    f"group {name!r} has no committed offset in {topic}-{partition} to shift: name"
                    " other partitions with --topic, or give another place with --to"
                )
        return {p: now[p] + goal.value for p in places}
    if goal.goal is Goal.TIME:
        timed = offsets.at_time(places, goal.value)
        late = [p for p, offset in timed.items() if offset < 0]  # no message is so new
        return timed | offsets.ends(late)
    return offsets.starts(places) if goal.goal is Goal.EARLIEST else offsets.ends(places)


def _clamped(offsets: Offsets, wanted: dict[Partition, int]) -> dict[Partition, int]:
    """The offsets, moved into their logs where they lie outside."""
    places = list(wanted)
    starts, ends = offsets.starts(places), offsets.ends(places)
    return {p: min(max(offset, starts[p]), ends[p]) for p, offset in wanted.items()}
