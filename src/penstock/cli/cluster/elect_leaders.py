"""`penstock cluster elect-leaders`: leaders back to preferred replicas, or any leader at all."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.access import Access
from penstock.cli.cluster.asking import Brokers
from penstock.cli.cluster.choice import choose
from penstock.cli.cluster.elections import PREFERRED, UNCLEAN, Election, elect
from penstock.cli.cluster.options import Topics, Yes, confirm, require_yes
from penstock.cli.cluster.state import read_partitions
from penstock.cli.errors import EXIT_FAILED
from penstock.cli.options import (
    Format,
    OutputFormat,
)
from penstock.cli.output import plural, print_json, print_table, remark


def elect_leaders(
    access: Access,
    topics: Topics = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Let a replica that is not in sync lead where no other is left; loses data.",
        ),
    ] = False,
    yes: Yes = False,
    output_format: OutputFormat = Format.TEXT,
) -> int:
    """Give partitions back to their preferred leaders, the first of their replicas; with --unclean,
    give those without a leader to any replica that is alive.
    """
    if unclean:
        require_yes(yes, "an unclean election")
    brokers = Brokers(access)
    partitions = choose(read_partitions(brokers), topics or ())
    if unclean:
        wanted = [p.key for p in partitions.values() if p.leader is None]
    else:
        wanted = [p.key for p in partitions.values() if p.replicas[:1] != (p.leader,)]
    if wanted and unclean:
        confirm(
            yes,
            f"Let any replica lead {plural(len(wanted), 'partition')} without a leader? Messages"
            " that it lacks are lost, though they were acknowledged.",
        )
    held = []
    if wanted:
        held = elect(brokers, wanted, UNCLEAN if unclean else PREFERRED, "elect leaders")
    if not held:
        remark("no election is needed")
    _print(held, as_json=output_format is Format.JSON)
    return EXIT_FAILED if any(election.error for election in held) else 0


def _print(held: list[Election], *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "topic": election.topic,
                    "partition": election.number,
                    "elected": not election.error,
                    "error": election.error or None,
                }
                for election in held
            ]
        )
    elif held:
        rows = [(e.topic, e.number, e.error or "elected") for e in held]
        print_table(("topic", "partition", "result"), rows)
