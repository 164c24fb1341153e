"""Every group of a cluster, of whatever kind, as the brokers that coordinate them list it.

confluent-kafka lists groups of consumers alone, so the requests are our own: ListGroups to each
broker that is not fenced. A broker that does not answer, and a partition of the groups' log without
a leader, hide groups: they are noted in `Listing.problems`, and nobody may take such a listing for
all there is.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from penstock.cli.cluster.asking import ASKED_AT_ONCE_MAX, Brokers, check
from penstock.cli.cluster.state import Node, read_nodes, read_partitions
from penstock.cli.errors import CliError
from penstock.kafka.brokers import PASSING, Patience
from penstock.kafka.client import unreachable, why
from penstock.metadata.names import OFFSETS_TOPIC
from penstock.wire.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

UNKNOWN = "Unknown"
CONSUMERS = "consumer"
"""The protocol of consumers; Kafka Connect's is `connect`."""


class Listed(NamedTuple):
    """`type` and `state` have Kafka's names, `protocol` is that of the members: `consumer`,
    `connect`, or empty where there have been none.
    """

    group: str
    type: str
    protocol: str
    state: str


class Listing(NamedTuple):
    groups: dict[str, Listed]
    problems: list[str]
    """Clauses that say which groups may be missing, and why."""

    @property
    def incomplete(self) -> CliError | None:
        """The error of a listing that is not all there is."""
        if not self.problems:
            return None
        return CliError(
            f"some groups may be missing: {'; '.join(self.problems)}; see `penstock cluster status`"
        )


def list_all(brokers: Brokers) -> Listing:
    """Asks every broker, side by side."""
    nodes = [node for node in read_nodes(brokers).nodes.values() if not node.fenced]
    with ThreadPoolExecutor(ASKED_AT_ONCE_MAX) as pool:
        answers = list(pool.map(lambda node: _list_at(brokers, node), nodes))
    found = sorted(group for groups, _ in answers for group in groups)
    problems = [problem for _, problem in answers if problem]
    unled = [
        str(p)
        for p in read_partitions(brokers).values()
        if p.topic == OFFSETS_TOPIC and p.leader is None
    ]
    if unled:
        problems.append(f"{', '.join(unled)} has no leader")
    return Listing({group.group: group for group in found}, problems)


def _list_at(brokers: Brokers, node: Node) -> tuple[list[Listed], str]:
    """The groups of one broker, or why there are none; one that still loads is asked again."""
    doing = f"list the groups of broker {node.id}"
    patience = Patience(brokers.timeout_s)
    while True:
        try:
            answer = brokers.ask_at(node.address, ListGroupsRequest(), ListGroupsResponse, doing)
        except OSError as e:
            return [], unreachable(f"broker {node.id}", node.address, why(e))
        if answer.error_code not in PASSING or not patience.wait():
            check(answer.error_code, None, doing)
            return [_listed(g) for g in answer.groups], ""


def _listed(group: ListedGroup) -> Listed:
    """An old broker tells no type, and knows only one."""
    return Listed(
        group.group_id,
        (group.group_type or "classic").lower(),
        group.protocol_type,
        group.group_state or UNKNOWN,
    )
