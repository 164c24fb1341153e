"""`penstock group list`: the groups of the cluster."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli.access import Access
from penstock.cli.group.groups import Groups
from penstock.cli.kafka import Cluster
from penstock.cli.options import (
    Format,
    OutputFormat,
)
from penstock.cli.output import print_json, print_table, remark


class GroupType(StrEnum):
    CLASSIC = "classic"
    CONSUMER = "consumer"


class GroupState(StrEnum):
    STABLE = "Stable"
    EMPTY = "Empty"
    DEAD = "Dead"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    REBALANCING = "Rebalancing"


def list_groups(
    access: Access,
    group_type: Annotated[
        GroupType | None,
        typer.Option("--type", help="Only groups of this protocol.", case_sensitive=False),
    ] = None,
    states: Annotated[
        list[GroupState] | None,
        typer.Option(
            "--state", help="Only groups in this state; may be repeated.", case_sensitive=False
        ),
    ] = None,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """List consumer groups with their protocol (classic or consumer) and state."""
    rows = [
        group
        for group in Groups(Cluster(access)).listed().values()
        if (group_type is None or group.type == group_type)
        and (not states or group.state in states)
    ]
    if output_format is Format.JSON:
        print_json([group._asdict() for group in rows])
    elif rows:
        print_table(("group", "type", "state"), rows)
    elif group_type or states:
        remark("no group is like that: see all with `penstock group list`")
    else:
        remark("no groups yet: a consumer with a group.id makes one")
