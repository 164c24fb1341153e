"""What a described group is, and the groups that confluent-kafka refuses to describe: share groups,
streams groups, and those whose members are no consumers, such as Kafka Connect's.

Their coordinator is asked here. The assignments of members that are no consumers are in a form of
their own: what each of them has is not shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

from penstock.cli.cluster.asking import check
from penstock.cli.errors import CliError
from penstock.cli.group.listing import Listed
from penstock.cli.kafka import Cluster
from penstock.kafka.brokers import GROUP, Brokers
from penstock.kafka.offsets import Partition
from penstock.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from penstock.wire.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from penstock.wire.messages.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    TaskIds,
    Topology,
)
from penstock.wire.schema import Message

SHARE: Final = "share"
STREAMS: Final = "streams"
SHARE_DESCRIBE_VERSION: Final = 1
STREAMS_DESCRIBE_VERSION: Final = 0
SHARE_OFFSETS_VERSION: Final = 1
"""The first with the lag."""
DESCRIBE_GROUPS_VERSION: Final = 4
"""The first with the ids of static members; every broker since 2.4 serves it."""
_R = TypeVar(
    "_R",
    DescribeGroupsResponse,
    ShareGroupDescribeResponse,
    DescribeShareGroupOffsetsResponse,
    StreamsGroupDescribeResponse,
)


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
    starts: dict[Partition, int]
    """Of a share group: where it stands."""
    lags: dict[Partition, int]
    """Of a share group: how much it has not finished, where that is known."""
    places: tuple[Partition, ...] = ()
    """Of a share group: all partitions that it consumes, also where it has not begun yet."""


def describe_other(cluster: Cluster, listed: Listed, doing: str) -> Described:
    """State and members of a share or streams group, or of a classic group of any protocol."""
    if listed.type == SHARE:
        return _describe_share(cluster, listed, doing)
    if listed.type == STREAMS:
        return _describe_streams(cluster, listed, doing)
    if listed.type != "classic":
        raise CliError(
            f"cannot {doing}: it is a group of the type {listed.type}, which this command does not"
            " describe; use Kafka's own tool"
        )
    request = DescribeGroupsRequest(groups=[listed.group])
    [found] = _ask(
        cluster, listed.group, request, DescribeGroupsResponse, DESCRIBE_GROUPS_VERSION
    ).groups
    check(found.error_code, found.error_message, doing)
    members = [
        Member(m.member_id, m.group_instance_id, m.client_id, m.client_host.removeprefix("/"), [])
        for m in found.members
    ]
    return Described(
        listed.group,
        listed.type,
        found.group_state,
        found.protocol_data,
        None,
        sorted(members),
        {},
        {},
    )


def _describe_share(cluster: Cluster, listed: Listed, doing: str) -> Described:
    group = listed.group
    request = ShareGroupDescribeRequest(group_ids=[group])
    [found] = _ask(
        cluster, group, request, ShareGroupDescribeResponse, SHARE_DESCRIBE_VERSION
    ).groups
    check(found.error_code, found.error_message, doing)
    members = [
        Member(
            m.member_id,
            None,
            m.client_id,
            m.client_host.removeprefix("/"),
            sorted((t.topic_name, n) for t in m.assignment.topic_partitions for n in t.partitions),
        )
        for m in found.members
    ]
    everything = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    [offsets] = _ask(
        cluster,
        group,
        DescribeShareGroupOffsetsRequest(groups=[everything]),
        DescribeShareGroupOffsetsResponse,
        SHARE_OFFSETS_VERSION,
    ).groups
    check(offsets.error_code, offsets.error_message, doing)
    described = {
        (topic.topic_name, partition.partition_index): partition
        for topic in offsets.topics
        for partition in topic.partitions
    }
    return Described(
        group,
        SHARE,
        found.group_state,
        found.assignor_name,
        None,
        sorted(members),
        {place: p.start_offset for place, p in described.items() if p.start_offset >= 0},
        {place: p.lag for place, p in described.items() if p.lag >= 0},
        tuple(sorted(described)),
    )


def _describe_streams(cluster: Cluster, listed: Listed, doing: str) -> Described:
    """A member has the partitions that its active tasks read."""
    group = listed.group
    request = StreamsGroupDescribeRequest(group_ids=[group])
    [found] = _ask(
        cluster, group, request, StreamsGroupDescribeResponse, STREAMS_DESCRIBE_VERSION
    ).groups
    check(found.error_code, found.error_message, doing)
    topics = cluster.topics(cluster.admin())
    counts = {name: len(topic.partitions) for name, topic in topics.items()}
    sources = _sources(found.topology)
    members = [
        Member(
            m.member_id,
            m.instance_id,
            m.client_id,
            m.client_host.removeprefix("/"),
            sorted(_partitions(m.assignment.active_tasks, sources, counts)),
        )
        for m in found.members
    ]
    return Described(group, STREAMS, found.group_state, "", None, sorted(members), {}, {})


def _sources(topology: Topology | None) -> dict[str, list[str]]:
    """The topics that each subtopology reads."""
    subtopologies = (topology.subtopologies if topology is not None else None) or ()
    return {
        one.subtopology_id: [*one.source_topics, *(t.name for t in one.repartition_source_topics)]
        for one in subtopologies
    }


def _partitions(
    tasks: Iterable[TaskIds], sources: Mapping[str, list[str]], counts: Mapping[str, int]
) -> Iterator[Partition]:
    """What tasks read; a topic may have fewer partitions than there are tasks."""
    for of_subtopology in tasks:
        for topic in sources.get(of_subtopology.subtopology_id, ()):
            for number in of_subtopology.partitions:
                if number < counts.get(topic, 0):
                    yield topic, number


def _ask(cluster: Cluster, group: str, request: Message, response: type[_R], version: int) -> _R:
    """The answer of the group's coordinator."""
    with Brokers(cluster.access.addresses, cluster.timeout_s, cluster.access.client) as brokers:
        return brokers.ask_coordinator(
            GROUP,
            group,
            request,
            response,
            version,
            lambda found: [one.error_code for one in found.groups],
        )
