"""Which partitions lie behind which endpoint, for interactive queries.

A member that has told an endpoint is listed with the partitions of its active and of its standby
tasks. A task that is beyond the partitions of a topic has none of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.coordinator.streams_group.resolving import ResolvedSubtopology
from penstock.coordinator.streams_group.roster import Member
from penstock.coordinator.streams_group.tasks import TaskType, numbers_by_subtopology
from penstock.coordinator.streams_group.topology import source_names
from penstock.coordinator.topics import TopicsView
from penstock.wire.messages.streams_group_heartbeat import (
    Endpoint,
    EndpointToPartitions,
    TopicPartition,
)


def partitions_by_endpoint(
    members: Iterable[Member],
    subtopologies: Mapping[str, ResolvedSubtopology],
    topics: TopicsView,
) -> list[EndpointToPartitions]:
    def partitions(member: Member, kind: TaskType) -> list[TopicPartition]:
        found = []
        numbers = numbers_by_subtopology(member.progress.assigned, kind)
        for subtopology_id, tasks in numbers.items():
            resolved = subtopologies.get(subtopology_id)
            names = () if resolved is None else sorted(set(source_names(resolved.source)))
            for name in names:
                count = topics.partition_count(name)
                if count is not None:
                    held = [number for number in tasks if number < count]
                    found.append(TopicPartition(topic=name, partitions=held))
        return found

    return [
        EndpointToPartitions(
            user_endpoint=Endpoint(host=endpoint.host, port=endpoint.port),
            active_partitions=partitions(member, TaskType.ACTIVE),
            standby_partitions=partitions(member, TaskType.STANDBY),
        )
        for member in members
        if (endpoint := member.profile.endpoint) is not None
    ]
