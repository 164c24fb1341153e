"""What a described group is, and groups whose members are no consumers, such as Kafka Connect's.

confluent-kafka refuses to describe those, so the coordinator is asked by DescribeGroups. Their
members' assignments are in a form of their own: what each of them has is not shown.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.cli.cluster.asking import check
from penstock.cli.errors import CliError
from penstock.cli.group.listing import Listed
from penstock.cli.kafka import Cluster
from penstock.kafka.brokers import GROUP, Brokers
from penstock.kafka.offsets import Partition
from penstock.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

DESCRIBE_GROUPS_VERSION: Final = 4
"""The first with the ids of static members; every broker since 2.4 serves it."""


class Member(NamedTuple):
    id: str
    instance: str | None
    client: str
    host: str
    partitions: list[Partition]


class Described(NamedTuple):
    group: str
    type: str
    state: str
    assignor: str
    coordinator: int | None
    members: list[Member]


def describe_other(cluster: Cluster, listed: Listed, doing: str) -> Described:
    """State and members of a classic group of any protocol."""
    if listed.type != "classic":
        raise CliError(
            f"cannot {doing}: it is a group of the type {listed.type}, which this command does not"
            " describe; use Kafka's own tool"
        )
    request = DescribeGroupsRequest(groups=[listed.group])
    with Brokers(cluster.access.addresses, cluster.timeout_s, cluster.access.client) as brokers:
        answer = brokers.ask_coordinator(
            GROUP,
            listed.group,
            request,
            DescribeGroupsResponse,
            DESCRIBE_GROUPS_VERSION,
            lambda found: [group.error_code for group in found.groups],
        )
    [found] = answer.groups
    check(found.error_code, found.error_message, doing)
    members = [
        Member(m.member_id, m.group_instance_id, m.client_id, m.client_host.removeprefix("/"), [])
        for m in found.members
    ]
    return Described(
        listed.group, listed.type, found.group_state, found.protocol_data, None, sorted(members)
    )
