"""Arguments, options and questions that several cluster commands share."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock.cli.cluster.state import ClusterState, Node
from penstock.cli.errors import CliError, usage_error
from penstock.cli.values import parse_size

NodeId = Annotated[int, typer.Argument(metavar="NODE", min=0, help="Id of the node.")]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC[:P,P...]",
        help="Only this topic, or only these partitions of it; may be repeated.",
    ),
]
Throttle = Annotated[
    str | None,
    typer.Option(
        "--throttle",
        metavar="BYTES",
        help="The most that each node sends and fetches per second for it, as 50M.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def throttle_rate(text: str | None) -> int | None:
    """Bytes per second, or None for no throttle."""
    if text is None:
        return None
    rate = parse_size(text)
    if rate < 1:
        raise usage_error("a throttle of 0 would let nothing through: give more, as 50M")
    return rate


def require_yes(yes: bool, what: str) -> None:
    """Refuses early where a question would find nobody to answer it."""
    if not yes and not sys.stdin.isatty():
        raise usage_error(f"{what} needs a yes: nobody is here to ask, so add --yes")


def confirm(yes: bool, question: str) -> None:
    """Goes on only with a yes."""
    if not yes and not typer.confirm(question, err=True):
        raise CliError("nothing was changed: answer y to go on")


def require_node(state: ClusterState, node: int) -> Node:
    """The registered node of that id, or the sentence that there is none."""
    if node not in state.nodes:
        known = ", ".join(map(str, state.nodes))
        raise CliError(f"there is no node {node}: the cluster's nodes are {known}")
    return state.nodes[node]
