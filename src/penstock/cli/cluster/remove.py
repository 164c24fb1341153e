"""`penstock cluster remove`: forget a node that was drained and stopped, or is lost for good."""

from __future__ import annotations

from penstock.cli.access import Access
from penstock.cli.cluster.asking import Brokers, check
from penstock.cli.cluster.options import NodeId, Yes, confirm, require_node, require_yes
from penstock.cli.cluster.state import Node, read_nodes, read_partitions, read_quorum
from penstock.cli.cluster.voters import drop_voter
from penstock.cli.errors import CliError
from penstock.cli.options import (
    Format,
    OutputFormat,
)
from penstock.cli.output import print_json
from penstock.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)


def remove(
    access: Access,
    node: NodeId,
    yes: Yes = False,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Take the stopped NODE, which holds no replica any more, out of the voters and the cluster."""
    require_yes(yes, f"removing node {node}")
    brokers = Brokers(access)
    state = read_nodes(brokers)
    _require_stopped(require_node(state, node))
    held = [p for p in read_partitions(brokers).values() if node in p.replicas]
    if held:
        raise CliError(
            f"node {node} still belongs to {len(held)} partitions, {held[0]} among them: move them"
            f" away first with `penstock cluster drain {node}`"
        )
    confirm(yes, f"Remove node {node} from the cluster?")
    was_voter = drop_voter(brokers, state.cluster_id, read_quorum(brokers), node)
    _unregister(brokers, node)
    if output_format is Format.JSON:
        print_json({"node": node, "removed": True, "was_voter": was_voter})
    else:
        voter = ", which was a voter" if was_voter else ""
        print(f"removed node {node}{voter}; its folder can be deleted")


def _require_stopped(node: Node) -> None:
    if not node.fenced:
        raise CliError(f"node {node.id} is running: stop it first, then remove it")


def _unregister(brokers: Brokers, node: int) -> None:
    doing = f"remove node {node}"
    answer = brokers.ask(UnregisterBrokerRequest(broker_id=node), UnregisterBrokerResponse, doing)
    check(answer.error_code, answer.error_message, doing)
