"""Decisions about single partitions: AlterPartition, by which a leader changes its in-sync set, and
ElectLeaders.

A leader's request names the epochs it believes in. Those that are ahead of the image mean that this
controller is not the newest one (NOT_CONTROLLER), those behind that the leader is not
(FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION). A leader that leaves itself out of the set gives its
leadership up: one of the others is elected, or an eligible one if it names no other. A broker that
is fenced, shutting down, or another incarnation than the one that fetched cannot join an in-sync
set (INELIGIBLE_REPLICA).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from penstock.base.errors import ApiError, ErrorCode
from penstock.metadata.image import MetadataImage, Partition, changed
from penstock.metadata.partition_change import (
    RECOVERED,
    RECOVERING,
    Election,
    PartitionChanges,
    Target,
)
from penstock.metadata.partition_index import PartitionKey, Place
from penstock.metadata.records import NO_LEADER, NO_LEADER_CHANGE, MetadataRecord
from penstock.metadata.topic_rules import TopicRules
from penstock.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
    ResponseTopicData,
)
from penstock.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)

ANY_EPOCH = -1
"""In a request: the leader does not know the epoch of a follower's broker."""


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


class PartitionControl:
    def __init__(self, image: MetadataImage, rules: TopicRules) -> None:
        self._image = image
        self._changes = PartitionChanges(image, rules)

    # -- AlterPartition ------------------------------------------------------------------------

    def alter(
        self, request: AlterPartitionRequest
    ) -> tuple[list[MetadataRecord], AlterPartitionResponse]:
        """The caller has checked the broker epoch of the leader that asks."""
        records: dict[PartitionKey, MetadataRecord] = {}
        response = AlterPartitionResponse()
        for topic in request.topics:
            answers = [
                self._alter_one(request.broker_id, topic, partition, records)
                for partition in topic.partitions
            ]
            response.topics.append(ResponseTopicData(topic_id=topic.topic_id, partitions=answers))
        return list(records.values()), response

    def _alter_one(
        self,
        broker_id: int,
        topic_data: RequestTopicData,
        data: RequestPartitionData,
        records: dict[PartitionKey, MetadataRecord],
    ) -> ResponsePartitionData:
        topic = self._image.topics_by_id.get(topic_data.topic_id)
        if topic is None:
            return _refused(data, ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self._image.partition(topic.id, data.partition_index)
        if partition is None:
            return _refused(data, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        isr = data.new_isr_with_epochs or [
            BrokerState(broker_id=b, broker_epoch=ANY_EPOCH) for b in data.new_isr
        ]
        key = (topic.id, data.partition_index)
        # Named again in the same request, the partition has another epoch by now.
        code = ErrorCode.INVALID_UPDATE_VERSION if key in records else ErrorCode.NONE
        if code is ErrorCode.NONE:
            code = _epoch_error(broker_id, partition, data)
        if code is ErrorCode.NONE:
            code = self._isr_error(partition, data, isr)
        if code is not ErrorCode.NONE:
            return _refused(data, code)
        place = Place(topic, data.partition_index, partition)
        members = [state.broker_id for state in isr]
        target = Target(
            isr=members,
            recovery_state=data.leader_recovery_state,
            not_eligible=None if broker_id in members else broker_id,
        )
        record = self._changes.record(place, self._changes.usual(topic.name), target)
        if record is not None:
            records[key] = record
            partition = changed(partition, record)
            if record.leader not in (NO_LEADER_CHANGE, broker_id):
                # The change completed a reassignment, which took the leader away, or the leader
                # has left itself out.
                return _refused(data, ErrorCode.NEW_LEADER_ELECTED)
        return ResponsePartitionData(
            partition_index=data.partition_index,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=list(partition.isr),
            leader_recovery_state=partition.recovery_state,
            partition_epoch=partition.partition_epoch,
        )

    def _isr_error(
        self, partition: Partition, data: RequestPartitionData, isr: list[BrokerState]
    ) -> ErrorCode:
        ids = [state.broker_id for state in isr]
        state = data.leader_recovery_state
        if (
            len(set(ids)) != len(ids)
            or not set(ids) <= set(partition.replicas)
            or not (ids or self._eligible_leads(partition))
            or state not in (RECOVERED, RECOVERING)
            or (state == RECOVERING and (len(ids) > 1 or partition.recovery_state == RECOVERED))
        ):
            return ErrorCode.INVALID_REQUEST
        if not all(self._eligible(state) for state in isr):
            return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.NONE

    def _eligible_leads(self, partition: Partition) -> bool:
        return any(self._changes.may_lead(broker_id, partition) for broker_id in partition.elr)

    def _eligible(self, state: BrokerState) -> bool:
        broker = self._image.brokers.get(state.broker_id)
        return (
            broker is not None
            and not broker.fenced
            and not broker.in_controlled_shutdown
            and state.broker_epoch in (ANY_EPOCH, broker.epoch)
        )

    # -- ElectLeaders --------------------------------------------------------------------------

    def elect(
        self, request: ElectLeadersRequest
    ) -> tuple[list[MetadataRecord], ElectLeadersResponse]:
        try:
            kind = ElectionType(request.election_type)
        except ValueError:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{request.election_type} is not a type of election: use 0 (preferred) or 1 "
                "(unclean)",
            ) from None
        records: dict[PartitionKey, MetadataRecord] = {}
        response = ElectLeadersResponse()
        everything = request.topic_partitions is None
        for wanted in self._all() if everything else request.topic_partitions or ():
            result = ReplicaElectionResult(topic=wanted.topic)
            for index in wanted.partitions:
                code, message = self._elect_one(wanted.topic, index, kind, records)
                # A request for all partitions is answered with those that needed an election.
                if not (everything and code is ErrorCode.ELECTION_NOT_NEEDED):
                    result.partition_result.append(
                        PartitionResult(partition_id=index, error_code=code, error_message=message)
                    )
            response.replica_election_results.append(result)
        return list(records.values()), response

    def _all(self) -> Iterator[TopicPartitions]:
        for topic in self._image.topics.values():
            yield TopicPartitions(topic=topic.name, partitions=list(range(len(topic.partitions))))

    def _elect_one(
        self, name: str, index: int, kind: ElectionType, records: dict[PartitionKey, MetadataRecord]
    ) -> tuple[ErrorCode, str | None]:
        topic = self._image.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            missing = f"topic {name!r}" if topic is None else f"partition {name}-{index}"
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {missing}"
        partition = topic.partitions[index]
        if kind is ElectionType.PREFERRED:
            needless = partition.leader == partition.replicas[0]
            election, failed = Election.PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            why = f"replica {partition.replicas[0]} is not in sync or not alive"
        else:
            needless = partition.leader != NO_LEADER
            election, failed = Election.UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
            why = "none of its replicas is alive"
        if needless or (topic.id, index) in records:
            return ErrorCode.ELECTION_NOT_NEEDED, f"replica {partition.leader} leads already"
        record = self._changes.record(Place(topic, index, partition), election)
        if record is None:
            return failed, why
        records[topic.id, index] = record
        return ErrorCode.NONE, None


def _epoch_error(broker_id: int, partition: Partition, data: RequestPartitionData) -> ErrorCode:
    """What the epochs in a leader's request say of it, or of us."""
    if data.leader_epoch > partition.leader_epoch:
        return ErrorCode.NOT_CONTROLLER
    if data.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if data.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if data.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    return ErrorCode.NONE


def _refused(data: RequestPartitionData, code: ErrorCode) -> ResponsePartitionData:
    return ResponsePartitionData(partition_index=data.partition_index, error_code=code)
