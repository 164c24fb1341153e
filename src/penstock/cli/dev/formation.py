"""Whether the nodes of a local cluster have found together, so that any of them may fail."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from penstock.cli.access import Access
from penstock.cli.cluster.asking import Brokers
from penstock.cli.cluster.state import read_nodes, read_quorum
from penstock.cli.dev.folders import LocalNode
from penstock.cli.errors import CliError

ANSWER_S_MAX = 2.0


def missing(nodes: Iterable[LocalNode], client: Path | None = None) -> str:
    """What is not there yet, in words; nothing when all nodes serve and all voters vote. `client`
    is a file with the settings by which they are asked, where they have security.
    """
    nodes = list(nodes)
    addresses = ",".join(node.address for node in nodes)
    file = None if client is None else str(client)
    try:
        brokers = Brokers(Access.of(addresses, ANSWER_S_MAX, file=file))
        serving = [node.id for node in read_nodes(brokers).nodes.values() if not node.fenced]
        voting = [voter.id for voter in read_quorum(brokers).voters if voter.heard_from]
    except CliError as e:
        return e.sentence
    for node in nodes:
        if node.number not in serving:
            return f"node {node.number} is not part of the cluster yet"
        if node.is_voter and node.number not in voting:
            return f"node {node.number} is not a voter yet"
    return ""
