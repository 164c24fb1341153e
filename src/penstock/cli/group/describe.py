"""`penstock group describe`: who is in a group, who reads what, and how far behind it is."""

from __future__ import annotations

from typing import Any

from penstock.cli.access import Access
from penstock.cli.errors import CliError
from penstock.cli.group.groups import Groups
from penstock.cli.group.options import GroupNames
from penstock.cli.group.others import SHARE, Described
from penstock.cli.kafka import Cluster
from penstock.cli.offsets import Offsets
from penstock.cli.options import (
    Format,
    OutputFormat,
)
from penstock.cli.output import plural, print_json, print_table, title
from penstock.kafka.offsets import Partition


def describe(
    access: Access,
    names: GroupNames,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Show the state, the members and, per partition, the owner and the lag of each GROUP."""
    groups = Groups(Cluster(access))
    names = list(dict.fromkeys(names))
    groups.require(names)
    described = groups.describe(names)
    committed = {
        group.group: group.starts if group.type == SHARE else groups.committed(group.group)
        for group in described
    }
    read = {p for group in described for m in group.members for p in m.partitions}
    offsets = Offsets(groups.cluster, partial=True)
    ends = _ends(groups, offsets, read.union(*committed.values()))
    facts = [_facts(group, committed[group.group], ends, offsets) for group in described]
    if output_format is Format.JSON:
        print_json(facts)
    else:
        for i, group in enumerate(facts):
            if i:
                print()
            _print_group(group)
    if offsets.missing:
        text = offsets.missing_text()
        raise CliError(f"the ends of some partitions are missing above: {text}")


def _ends(groups: Groups, offsets: Offsets, partitions: set[Partition]) -> dict[Partition, int]:
    """The end of each partition; one whose topic is gone has none, and is not missed."""
    known = groups.cluster.topics(groups.admin)
    return offsets.ends((t, p) for t, p in partitions if t in known and p in known[t].partitions)


def _facts(
    group: Described,
    committed: dict[Partition, int],
    ends: dict[Partition, int],
    offsets: Offsets,
) -> dict[str, Any]:
    owners: dict[Partition, str] = {}
    for member in group.members:
        for p in member.partitions:
            owners[p] = f"{owners[p]}, {member.id}" if p in owners else member.id
    partitions = [
        {
            "topic": p[0],
            "partition": p[1],
            "owner": owners.get(p),
            "committed": committed.get(p),
            "end": ends.get(p),
            "lag": _lag(group, p, committed, ends),
        }
        for p in sorted(owners.keys() | committed.keys())
    ]
    facts: dict[str, Any] = {
        "group": group.group,
        "type": group.type,
        "state": group.state,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "lag": sum(p["lag"] or 0 for p in partitions),
        "members": [
            {
                "member": m.id,
                "instance": m.instance,
                "client": m.client,
                "host": m.host,
                "partitions": len(m.partitions),
            }
            for m in group.members
        ],
        "partitions": partitions,
    }
    if missing := offsets.missing_facts(owners.keys() | committed.keys()):
        facts["missing"] = missing
    return facts


def _lag(
    group: Described, place: Partition, committed: dict[Partition, int], ends: dict[Partition, int]
) -> int | None:
    if group.type == SHARE:
        return group.lags.get(place)
    return max(0, ends[place] - committed[place]) if place in ends and place in committed else None


def _print_group(group: dict[str, Any]) -> None:
    members, partitions = group["members"], group["partitions"]
    title(f"group {group['group']}")
    print(f"type: {group['type']}, state: {group['state']}, assignor: {group['assignor'] or '-'}")
    at_least = "at least " if "missing" in group else ""
    print(f"{plural(len(members), 'member')}, {at_least}{plural(group['lag'], 'message')} behind")
    for rows in (members, partitions):
        if rows:
            print_table(
                list(rows[0]),
                [["-" if cell is None else cell for cell in row.values()] for row in rows],
            )
