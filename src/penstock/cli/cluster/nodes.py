"""`penstock cluster nodes`: the nodes, their state and what each carries."""

from __future__ import annotations

from typing import Any

from penstock.cli.access import Access
from penstock.cli.cluster.asking import Brokers
from penstock.cli.cluster.health import loads
from penstock.cli.cluster.state import ClusterState, gather
from penstock.cli.options import (
    Format,
    OutputFormat,
)
from penstock.cli.output import bytes_text, print_json, print_table, remark
from penstock.config.listeners import address_text


def nodes(
    access: Access,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """List the nodes with address, rack, state, role in the quorum, leaders, replicas and disk."""
    state = gather(Brokers(access))
    if output_format is Format.JSON:
        print_json(node_facts(state))
        return
    print_nodes(state)
    for problem in state.problems:
        remark(problem)


def node_facts(state: ClusterState) -> list[dict[str, Any]]:
    """One entry per registered node."""
    load = loads(state)
    rows = []
    for node in state.nodes.values():
        disk = state.disks.get(node.id)
        rows.append(
            {
                "node": node.id,
                "address": address_text(node.host, node.port),
                "rack": node.rack,
                "state": _state(state, node.id),
                "quorum": _role(state, node.id),
                "leaders": load[node.id].leaders,
                "replicas": load[node.id].replicas,
                "disk_bytes": load[node.id].disk_bytes,
                "disk_free_bytes": disk.usable_bytes if disk and disk.total_bytes else None,
            }
        )
    return rows


def _state(state: ClusterState, node: int) -> str:
    if state.nodes[node].fenced:
        return "fenced"
    disk = state.disks.get(node)
    if disk is None:
        return "unreachable"
    return "cordoned" if disk.cordoned else "running"


def _role(state: ClusterState, node: int) -> str | None:
    quorum = state.quorum
    if quorum is None:
        return None
    if node == quorum.leader:
        return "leader"
    if node in [voter.id for voter in quorum.voters]:
        return "voter"
    return "observer"


def print_nodes(state: ClusterState) -> None:
    """The same as a table."""
    columns = ("node", "address", "rack", "state", "quorum", "leaders", "replicas", "disk", "free")
    rows = []
    for row in node_facts(state):
        *cells, disk, free = row.values()
        sizes = ("-" if size is None else bytes_text(size) for size in (disk, free))
        rows.append([*("-" if cell is None else cell for cell in cells), *sizes])
    print_table(columns, rows)
