"""`penstock group list`: the groups of the cluster."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli.access import Access
from penstock.cli.cluster.asking import Brokers
from penstock.cli.group.listing import Listed, list_all
from penstock.cli.options import (
    Format,
    OutputFormat,
)
from penstock.cli.output import print_json, print_table, remark


class GroupType(StrEnum):
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class GroupState(StrEnum):
    STABLE = "Stable"
    EMPTY = "Empty"
    DEAD = "Dead"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"


def list_groups(
    access: Access,
    group_type: Annotated[
        GroupType | None,
        typer.Option("--type", help="Only groups of this type.", case_sensitive=False),
    ] = None,
    states: Annotated[
        list[GroupState] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Only groups in this state, such as Stable or Empty; may be repeated.",
            case_sensitive=False,
        ),
    ] = None,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """List the groups of all kinds with their type, the protocol of their members and state."""
    listing = list_all(Brokers(access))
    rows = [
        group
        for group in listing.groups.values()
        if (group_type is None or group.type == group_type)
        and (not states or group.state in states)
    ]
    if output_format is Format.JSON:
        print_json([group._asdict() for group in rows])
    elif rows:
        print_table(Listed._fields, [[cell or "-" for cell in group] for group in rows])
    elif group_type or states:
        remark("no group is like that: see all with `penstock group list`")
    elif not listing.problems:
        remark("no groups yet: a consumer with a group.id makes one")
    if incomplete := listing.incomplete:
        raise incomplete
