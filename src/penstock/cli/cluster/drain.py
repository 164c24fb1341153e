"""`penstock cluster drain`: empty a node, so that it can be stopped and removed for good.

First the node is cordoned (`cordoned.log.dirs`), so that nothing new is placed on it; then its
replicas are moved to the others with the same machinery as `reassign`. A node that is gone is
drained in the same way, as long as each partition has a replica in sync elsewhere.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from penstock.cli.access import Access
from penstock.cli.cluster.asking import Brokers
from penstock.cli.cluster.configs import Change, alter_node
from penstock.cli.cluster.options import (
    NodeId,
    Throttle,
    Yes,
    require_node,
    require_yes,
    throttle_rate,
)
from penstock.cli.cluster.planning import without
from penstock.cli.cluster.reassign import carry_out, quiet_state
from penstock.cli.cluster.state import ClusterState, Node, read_disk, read_nodes
from penstock.cli.errors import CliError
from penstock.cli.options import (
    Format,
    OutputFormat,
)
from penstock.cli.output import remark

CORDON = "cordoned.log.dirs"
HEARD_S_MAX = 5.0
LOOK_EVERY_S = 0.05
ROUNDS_MAX = 3
"""A topic that was being created while the node was cordoned is moved in the next round."""


def drain(
    access: Access,
    node: NodeId,
    undo: Annotated[
        bool, typer.Option("--undo", help="Let new partitions be placed on NODE again.")
    ] = False,
    throttle: Throttle = None,
    yes: Yes = False,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Move every replica away from NODE and place no new ones there."""
    rate = throttle_rate(throttle)
    if not undo:
        require_yes(yes, f"draining node {node}")
    brokers = Brokers(access)
    registered = require_node(read_nodes(brokers), node)
    if undo:
        _cordon(brokers, registered, on=False)
        remark(f"node {node} takes new partitions again; fill it with `penstock cluster reassign`")
        return
    _empty(brokers, registered, rate, yes=yes, as_json=output_format is Format.JSON)
    remark(
        f"node {node} is empty: stop it, then forget it with `penstock cluster remove {node}`;"
        f" to keep it, `penstock cluster drain {node} --undo`"
    )


def _empty(brokers: Brokers, node: Node, rate: int | None, *, yes: bool, as_json: bool) -> None:
    for round_number in range(ROUNDS_MAX):
        state = quiet_state(brokers)
        if round_number and not _held(state, node):
            return
        carry_out(
            brokers,
            state,
            without(state, node.id),
            rate,
            dry_run=False,
            yes=yes or round_number > 0,
            as_json=as_json,
            first=lambda: _cordon(brokers, node, on=True),
        )
    if left := _held(quiet_state(brokers), node):
        raise CliError(
            f"node {node.id} still holds {left[0]}: look who puts it there, and try again"
        )


def _held(state: ClusterState, node: Node) -> list[str]:
    return [str(p) for p in state.partitions.values() if node.id in p.replicas]


def _cordon(brokers: Brokers, node: Node, *, on: bool) -> None:
    doing = f"cordon node {node.id}" if on else f"lift the cordon of node {node.id}"
    alter_node(brokers, node, [Change(CORDON, "*" if on else None)], doing)
    if not node.fenced:
        _await_cordon(brokers, node, on=on)


def _await_cordon(brokers: Brokers, node: Node, *, on: bool) -> None:
    """The controller has decided; the node says itself whether it is cordoned, and hears it later.

    A release that does not tell, or a node that went away meanwhile, is not waited for in vain.
    """
    deadline = time.monotonic() + HEARD_S_MAX
    while time.monotonic() < deadline:
        try:
            if read_disk(brokers, node).cordoned == on:
                return
        except CliError:
            return
        time.sleep(LOOK_EVERY_S)
