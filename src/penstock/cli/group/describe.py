"""`penstock group describe`: who is in a group, who reads what, and how far behind it is."""

from __future__ import annotations

from typing import Any

from penstock.cli.access import Access
from penstock.cli.group.groups import Described, Groups, Partition
from penstock.cli.group.options import GroupNames
from penstock.cli.kafka import Cluster
from penstock.cli.options import (
    Format,
    OutputFormat,
)
from penstock.cli.output import plural, print_json, print_table, title


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
    committed = {name: groups.committed(name) for name in names}
    read = {p for group in described for m in group.members for p in m.partitions}
    ends = _ends(groups, read.union(*committed.values()))
    facts = [_facts(group, committed[group.group], ends) for group in described]
    if output_format is Format.JSON:
        print_json(facts)
        return
    for i, group in enumerate(facts):
        if i:
            print()
        _print_group(group)


def _ends(groups: Groups, partitions: set[Partition]) -> dict[Partition, int]:
    """The end of each partition; one whose topic is gone has none."""
    known = groups.cluster.topics(groups.admin)
    return groups.ends((t, p) for t, p in partitions if t in known and p in known[t].partitions)


def _facts(
    group: Described, committed: dict[Partition, int], ends: dict[Partition, int]
) -> dict[str, Any]:
    owners = {p: member.id for member in group.members for p in member.partitions}
    partitions = [
        {
            "topic": p[0],
            "partition": p[1],
            "owner": owners.get(p),
            "committed": committed.get(p),
            "end": ends.get(p),
            "lag": max(0, ends[p] - committed[p]) if p in ends and p in committed else None,
        }
        for p in sorted(owners.keys() | committed.keys())
    ]
    return {
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


def _print_group(group: dict[str, Any]) -> None:
    members, partitions = group["members"], group["partitions"]
    title(f"group {group['group']}")
    print(f"type: {group['type']}, state: {group['state']}, assignor: {group['assignor'] or '-'}")
    print(f"{plural(len(members), 'member')}, {plural(group['lag'], 'message')} behind")
    for rows in (members, partitions):
        if rows:
            print_table(
                list(rows[0]),
                [["-" if cell is None else cell for cell in row.values()] for row in rows],
            )
