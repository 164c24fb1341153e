"""`penstock cluster add-voter` and `remove-voter`: who votes in the metadata quorum.

The voters are changed one at a time. Any node can be a voter; three or five of them are enough for
a cluster of any size, the others observe.
"""

from __future__ import annotations

from penstock.cli.access import Access
from penstock.cli.cluster.asking import Brokers, check
from penstock.cli.cluster.options import NodeId, require_node
from penstock.cli.cluster.state import Endpoint, Node, Quorum, read_nodes, read_quorum
from penstock.cli.errors import CliError
from penstock.cli.options import (
    Format,
    OutputFormat,
)
from penstock.cli.output import print_json
from penstock.wire.messages.add_raft_voter import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    Listener,
)
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


def add_voter(
    access: Access,
    node: NodeId,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Make NODE, which follows the metadata as an observer, a voter of the quorum."""
    brokers = Brokers(access)
    state = read_nodes(brokers)
    quorum = read_quorum(brokers)
    registered = require_node(state, node)
    if node in [voter.id for voter in quorum.voters]:
        raise CliError(f"node {node} is a voter already: see `penstock cluster status`")
    observer = next((o for o in quorum.observers if o.id == node), None)
    if observer is None:
        raise CliError(f"node {node} does not follow the metadata now: start it and try again")
    endpoint = _endpoint(registered, state.nodes.get(quorum.leader), quorum)
    request = AddRaftVoterRequest(
        cluster_id=state.cluster_id,
        timeout_ms=brokers.timeout_ms,
        voter_id=node,
        voter_directory_id=observer.directory_id,
        listeners=[Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)],
    )
    doing = f"make node {node} a voter"
    answer = brokers.ask(request, AddRaftVoterResponse, doing)
    check(answer.error_code, answer.error_message, doing)
    _tell(brokers, output_format, f"node {node} is a voter now")


def _endpoint(node: Node, leader: Node | None, quorum: Quorum) -> Endpoint:
    """Where the voters will reach the node: by its one listener, under the name it has there."""
    known = quorum.endpoints.get(quorum.leader, [])
    if leader is None or leader.address not in [(at.host, at.port) for at in known]:
        raise CliError(
            "the quorum of this cluster has listeners of its own: make the node a voter with the"
            " tools of its own release"
        )
    name = next(at.name for at in known if (at.host, at.port) == leader.address)
    return Endpoint(name, node.host, node.port)


def remove_voter(
    access: Access,
    node: NodeId,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Take NODE out of the voters; it goes on as an observer and keeps its data."""
    brokers = Brokers(access)
    cluster_id = read_nodes(brokers).cluster_id
    if not drop_voter(brokers, cluster_id, read_quorum(brokers), node):
        raise CliError(f"node {node} is not a voter: see `penstock cluster status`")
    _tell(brokers, output_format, f"node {node} is no voter any more")


def drop_voter(brokers: Brokers, cluster_id: str, quorum: Quorum, node: int) -> bool:
    """Removes every voter entry of the node; whether there was one."""
    entries = [voter for voter in quorum.voters if voter.id == node]
    for voter in entries:
        request = RemoveRaftVoterRequest(
            cluster_id=cluster_id, voter_id=node, voter_directory_id=voter.directory_id
        )
        doing = f"take node {node} out of the voters"
        answer = brokers.ask(request, RemoveRaftVoterResponse, doing)
        check(answer.error_code, answer.error_message, doing)
    return bool(entries)


def _tell(brokers: Brokers, output_format: Format, sentence: str) -> None:
    if output_format is Format.JSON:
        print_json({"voters": sorted(voter.id for voter in read_quorum(brokers).voters)})
    else:
        print(sentence)
