"""The records of a streams group: from its parts to the log and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from penstock.coordinator.effects import CoordinatorRecord
from penstock.coordinator.reconcile import MemberState
from penstock.coordinator.records import encode
from penstock.coordinator.streams_group.roster import Endpoint, Member, Profile, Progress, Roster
from penstock.coordinator.streams_group.tasks import (
    TaskType,
    TypedTask,
    flatten,
    grouped,
    numbers_by_subtopology,
)
from penstock.coordinator.streams_group.topology import Topology
from penstock.coordinator.streams_group_records import (
    LastAssignmentConfig,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
    TaskIdsWithEpochs,
)
from penstock.wire.messages import streams_group_heartbeat as wire

_STATES: Final = {
    MemberState.STABLE: 1,
    MemberState.UNREVOKED_PARTITIONS: 2,
    MemberState.UNRELEASED_PARTITIONS: 3,
    MemberState.UNKNOWN: 127,
}
"""Kafka's numbers in the records of streams groups."""
_STATES_BY_NUMBER: Final = {number: state for state, number in _STATES.items()}


def group_record(group_id: str, roster: Roster) -> CoordinatorRecord:
    return encode(
        StreamsGroupMetadataKey(group_id=group_id),
        StreamsGroupMetadataValue(
            epoch=roster.epoch,
            metadata_hash=roster.metadata_hash,
            validated_topology_epoch=roster.validated_epoch,
            last_assignment_configs=[
                LastAssignmentConfig(key=key, value=value)
                for key, value in sorted(roster.assignment_configs.items())
            ],
        ),
    )


def topology_record(
    group_id: str, epoch: int, subtopologies: list[wire.Subtopology]
) -> CoordinatorRecord:
    return encode(
        StreamsGroupTopologyKey(group_id=group_id),
        StreamsGroupTopologyValue(epoch=epoch, subtopologies=subtopologies),
    )


def topology_of(value: StreamsGroupTopologyValue) -> Topology:
    return Topology(value.epoch, value.subtopologies)


def profile_record(group_id: str, member: Member) -> CoordinatorRecord:
    profile = member.profile
    endpoint = profile.endpoint
    return encode(
        StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        StreamsGroupMemberMetadataValue(
            instance_id=None,
            rack_id=profile.rack_id,
            client_id=profile.client_id,
            client_host=profile.client_host,
            rebalance_timeout_ms=profile.rebalance_timeout_ms,
            topology_epoch=profile.topology_epoch,
            process_id=profile.process_id,
            user_endpoint=None
            if endpoint is None
            else wire.Endpoint(host=endpoint.host, port=endpoint.port),
            client_tags=[wire.KeyValue(key=key, value=value) for key, value in profile.tags],
        ),
    )


def profile_of(value: StreamsGroupMemberMetadataValue) -> Profile:
    endpoint = value.user_endpoint
    return Profile(
        value.rack_id,
        value.client_id,
        value.client_host,
        value.rebalance_timeout_ms,
        value.topology_epoch,
        value.process_id,
        None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        tuple((tag.key, tag.value) for tag in value.client_tags),
    )


def target_record(group_id: str, member_id: str, tasks: Iterable[TypedTask]) -> CoordinatorRecord:
    by_type = grouped(tasks)
    return encode(
        StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        StreamsGroupTargetAssignmentMemberValue(
            active_tasks=by_type.active,
            standby_tasks=by_type.standby,
            warmup_tasks=by_type.warmup,
        ),
    )


def target_of(value: StreamsGroupTargetAssignmentMemberValue) -> frozenset[TypedTask]:
    return frozenset(flatten(value.active_tasks, value.standby_tasks, value.warmup_tasks))


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    return encode(
        StreamsGroupTargetAssignmentMetadataKey(group_id=group_id),
        StreamsGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp_ms
        ),
    )


def progress_record(group_id: str, member: Member) -> CoordinatorRecord:
    progress = member.progress
    assigned, revoking = _with_epochs(progress.assigned), _with_epochs(progress.revoking)
    return encode(
        StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=progress.epoch,
            previous_member_epoch=progress.previous_epoch,
            state=_STATES[progress.state],
            active_tasks=assigned[TaskType.ACTIVE],
            standby_tasks=assigned[TaskType.STANDBY],
            warmup_tasks=assigned[TaskType.WARMUP],
            active_tasks_pending_revocation=revoking[TaskType.ACTIVE],
            standby_tasks_pending_revocation=revoking[TaskType.STANDBY],
            warmup_tasks_pending_revocation=revoking[TaskType.WARMUP],
        ),
    )


def progress_of(value: StreamsGroupCurrentMemberAssignmentValue) -> Progress:
    epoch = value.member_epoch
    assigned = value.active_tasks, value.standby_tasks, value.warmup_tasks
    revoking = (
        value.active_tasks_pending_revocation,
        value.standby_tasks_pending_revocation,
        value.warmup_tasks_pending_revocation,
    )
    return Progress(
        epoch,
        value.previous_member_epoch,
        _STATES_BY_NUMBER.get(value.state, MemberState.UNKNOWN),
        dict(_epochs_of(assigned, epoch)),
        dict(_epochs_of(revoking, epoch)),
    )


def group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[CoordinatorRecord]:
    """All that was written of a group, in Kafka's order."""
    ids = list(member_ids)
    return [
        *(_progress_tombstone(group_id, member_id) for member_id in ids),
        *(_target_tombstone(group_id, member_id) for member_id in ids),
        encode(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(_profile_tombstone(group_id, member_id) for member_id in ids),
        encode(StreamsGroupMetadataKey(group_id=group_id), None),
        encode(StreamsGroupTopologyKey(group_id=group_id), None),
    ]


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """All that was written of a member, in Kafka's order."""
    return [
        _progress_tombstone(group_id, member_id),
        _target_tombstone(group_id, member_id),
        _profile_tombstone(group_id, member_id),
    ]


def _progress_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    key = StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return encode(key, None)


def _target_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    key = StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return encode(key, None)


def _profile_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return encode(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)


def _with_epochs(epochs: Mapping[TypedTask, int]) -> list[list[TaskIdsWithEpochs]]:
    """By type; epochs are written of active tasks alone."""
    return [
        [
            TaskIdsWithEpochs(
                subtopology_id=id_,
                partitions=numbers,
                assignment_epochs=[epochs[kind, id_, number] for number in numbers]
                if kind is TaskType.ACTIVE
                else [],
            )
            for id_, numbers in numbers_by_subtopology(epochs, kind).items()
        ]
        for kind in TaskType
    ]


def _epochs_of(
    by_type: Iterable[Iterable[TaskIdsWithEpochs]], member_epoch: int
) -> Iterator[tuple[TypedTask, int]]:
    """Records of Kafka 4.2 carry no epochs: the member's own stands for those of active tasks."""
    for kind, entries in zip(TaskType, by_type, strict=True):
        for entry in entries:
            missing = member_epoch if kind is TaskType.ACTIVE else 0
            epochs = entry.assignment_epochs or [missing] * len(entry.partitions)
            for number, epoch in zip(entry.partitions, epochs, strict=True):
                yield (kind, entry.subtopology_id, number), epoch
