"""`penstock cluster VERB`: one module per verb."""

from __future__ import annotations

import typer


def build() -> typer.Typer:
    """The group of commands about the cluster as a whole."""
    from penstock.cli.cluster import (
        drain,
        elect_leaders,
        features,
        nodes,
        reassign,
        recover_quorum,
        remove,
        status,
        voters,
    )

    group = typer.Typer(
        help="See the cluster, move its data, change its nodes.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.command("status")(status.status)
    group.command("nodes")(nodes.nodes)
    group.command("elect-leaders")(elect_leaders.elect_leaders)
    group.command("reassign")(reassign.reassign)
    group.command("drain")(drain.drain)
    group.command("remove")(remove.remove)
    group.command("add-voter")(voters.add_voter)
    group.command("remove-voter")(voters.remove_voter)
    group.command("features")(features.features)
    group.command("recover-quorum")(recover_quorum.recover_quorum)
    return group
