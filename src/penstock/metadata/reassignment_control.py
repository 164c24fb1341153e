"""Decisions about where partitions lie: begin, change, cancel and list reassignments.

A reassignment first adds the new replicas to the old ones, which continue to serve; when every
replica that is to stay is in sync, those that are to go are taken away (`partition_change.py`). One
that only takes away or reorders is complete at once. Cancelling goes back to the replicas of
before. Each partition of a request is decided by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.base.errors import ApiError, ErrorCode
from penstock.metadata.assignments import check_replicas
from penstock.metadata.image import MetadataImage, Partition, Topic
from penstock.metadata.partition_change import Election, PartitionChanges, Target
from penstock.metadata.partition_index import PartitionIndex, Place
from penstock.metadata.records import MetadataRecord, PartitionChangeRecord
from penstock.metadata.topic_control import PARTITIONS_PER_REQUEST_MAX, too_many_partitions
from penstock.metadata.topic_rules import TopicRules
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


class ReassignmentControl:
    def __init__(self, image: MetadataImage, index: PartitionIndex, rules: TopicRules) -> None:
        self._image = image
        self._index = index
        self._rules = rules
        self._changes = PartitionChanges(image, rules)

    def alter(
        self, request: AlterPartitionReassignmentsRequest
    ) -> tuple[list[MetadataRecord], AlterPartitionReassignmentsResponse]:
        total = sum(len(topic.partitions) for topic in request.topics)
        if total > PARTITIONS_PER_REQUEST_MAX:
            raise too_many_partitions(total)
        records: dict[tuple[str, int], MetadataRecord] = {}
        response = AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change
        )
        for topic in request.topics:
            answer = ReassignableTopicResponse(name=topic.name)
            response.responses.append(answer)
            for wanted in topic.partitions:
                result = ReassignablePartitionResponse(partition_index=wanted.partition_index)
                answer.partitions.append(result)
                key = (topic.name, wanted.partition_index)
                try:
                    if key in records:
                        raise ApiError(
                            ErrorCode.INVALID_REQUEST, "the partition is in the request twice"
                        )
                    record = self._alter_one(
                        topic.name, wanted, request.allow_replication_factor_change
                    )
                    if record is not None:
                        records[key] = record
                except ApiError as e:
                    result.error_code, result.error_message = e.code, e.message
        return list(records.values()), response

    def _alter_one(
        self, name: str, wanted: ReassignablePartition, factor_may_change: bool
    ) -> PartitionChangeRecord | None:
        topic = self._image.topics.get(name)
        index = wanted.partition_index
        if topic is None or not 0 <= index < len(topic.partitions):
            missing = f"topic {name!r}" if topic is None else f"partition {name}-{index}"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {missing}")
        place = Place(topic, index, topic.partitions[index])
        if wanted.replicas is None:
            return self._cancelled(place)
        check_replicas(self._image, wanted.replicas)
        if not factor_may_change:
            _check_factor(place.partition, wanted.replicas)
        return self._begun(place, wanted.replicas)

    def _begun(self, place: Place, replicas: list[int]) -> PartitionChangeRecord | None:
        old, wanted = place.partition, set(replicas)
        removing = sorted(set(old.replicas) - wanted)
        # Where another reassignment is under way, what that was adding goes if this is cancelled.
        adding = sorted(wanted - set(old.replicas) | set(old.adding))
        target = Target(replicas=[*replicas, *removing], removing=removing, adding=adding)
        return self._changes.record(place, Election.ONLINE, target)

    def _cancelled(self, place: Place) -> PartitionChangeRecord | None:
        partition = place.partition
        name = place.topic.name
        if not (partition.adding or partition.removing):
            raise ApiError(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
                f"partition {name}-{place.index} is not being reassigned",
            )
        replicas = [b for b in partition.replicas if b not in partition.adding]
        isr = [b for b in partition.isr if b not in partition.adding]
        eligible = [b for b in partition.elr if b not in partition.adding]
        if not replicas or not (isr or eligible or self._rules.unclean(name)):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"the reassignment of {name}-{place.index} cannot be cancelled: of its earlier "
                "replicas none is in sync or eligible, so that it would lose data",
            )
        if not (isr or eligible):
            isr = replicas[:1]
        target = Target(isr=isr, replicas=replicas, removing=(), adding=())
        return self._changes.record(place, self._changes.usual(name), target)

    def list(
        self, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        wanted: Iterable[tuple[Topic, Iterable[int]]]
        if request.topics is None:
            indexes: dict[str, list[int]] = {}
            for key in self._index.reassigning:
                place = self._index.at(key)
                indexes.setdefault(place.topic.name, []).append(place.index)
            wanted = [(self._image.topics[name], sorted(found)) for name, found in indexes.items()]
        else:
            wanted = [
                (self._image.topics[topic.name], topic.partition_indexes)
                for topic in request.topics
                if topic.name in self._image.topics
            ]
        listed = [_ongoing(topic, found) for topic, found in wanted]
        return ListPartitionReassignmentsResponse(topics=[t for t in listed if t.partitions])


def _check_factor(partition: Partition, replicas: list[int]) -> None:
    factor = len([b for b in partition.replicas if b not in partition.removing])
    if len(replicas) != factor:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the replication factor would change from {factor} to {len(replicas)}, which the "
            "request does not allow",
        )


def _ongoing(topic: Topic, indexes: Iterable[int]) -> OngoingTopicReassignment:
    answer = OngoingTopicReassignment(name=topic.name)
    for index in indexes:
        if 0 <= index < len(topic.partitions):
            partition = topic.partitions[index]
            if partition.adding or partition.removing:
                answer.partitions.append(
                    OngoingPartitionReassignment(
                        partition_index=index,
                        replicas=list(partition.replicas),
                        adding_replicas=list(partition.adding),
                        removing_replicas=list(partition.removing),
                    )
                )
    return answer
