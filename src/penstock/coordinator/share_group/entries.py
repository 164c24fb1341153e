"""The records of a share group: from its parts to the log and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.base.ids import Uuid
from penstock.coordinator.consumer.partitions import Partition, by_topic, flatten
from penstock.coordinator.effects import CoordinatorRecord
from penstock.coordinator.records import encode
from penstock.coordinator.share_group.roster import STABLE, Member, Profile, Progress
from penstock.coordinator.share_group.states import StatePartitions, TopicState
from penstock.coordinator.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    ShareTopicPartitions,
    TopicInfo,
    TopicPartitionsInfo,
)


def group_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return encode(
        ShareGroupMetadataKey(group_id=group_id),
        ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def profile_record(group_id: str, member: Member) -> CoordinatorRecord:
    profile = member.profile
    return encode(
        ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ShareGroupMemberMetadataValue(
            rack_id=profile.rack_id,
            client_id=profile.client_id,
            client_host=profile.client_host,
            subscribed_topic_names=list(profile.topic_names),
        ),
    )


def profile_of(value: ShareGroupMemberMetadataValue) -> Profile:
    return Profile(
        value.rack_id, value.client_id, value.client_host, tuple(value.subscribed_topic_names)
    )


def target_record(
    group_id: str, member_id: str, partitions: Iterable[Partition]
) -> CoordinatorRecord:
    return encode(
        ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ShareGroupTargetAssignmentMemberValue(topic_partitions=_grouped(partitions)),
    )


def target_of(value: ShareGroupTargetAssignmentMemberValue) -> frozenset[Partition]:
    return frozenset(flatten(value.topic_partitions))


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    return encode(
        ShareGroupTargetAssignmentMetadataKey(group_id=group_id),
        ShareGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp_ms
        ),
    )


def progress_record(group_id: str, member: Member) -> CoordinatorRecord:
    progress = member.progress
    return encode(
        ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ShareGroupCurrentMemberAssignmentValue(
            member_epoch=progress.epoch,
            previous_member_epoch=progress.previous_epoch,
            state=STABLE,
            assigned_partitions=_grouped(progress.assigned),
        ),
    )


def progress_of(value: ShareGroupCurrentMemberAssignmentValue) -> Progress:
    return Progress(
        value.member_epoch,
        value.previous_member_epoch,
        frozenset(flatten(value.assigned_partitions)),
    )


def states_record(group_id: str, states: StatePartitions) -> CoordinatorRecord:
    return encode(
        ShareGroupStatePartitionMetadataKey(group_id=group_id),
        ShareGroupStatePartitionMetadataValue(
            initializing_topics=_stage(states.initializing),
            initialized_topics=_stage(states.initialized),
            deleting_topics=[
                TopicInfo(topic_id=topic_id, topic_name=name)
                for topic_id, name in sorted(states.deleting.items())
            ],
        ),
    )


def states_of(value: ShareGroupStatePartitionMetadataValue, written_ms: int) -> StatePartitions:
    return StatePartitions(
        _stage_of(value.initializing_topics, written_ms),
        _stage_of(value.initialized_topics, written_ms),
        {bytes(topic.topic_id): topic.topic_name for topic in value.deleting_topics},
    )


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """All that was written of a member, in Kafka's order."""
    names = {"group_id": group_id, "member_id": member_id}
    return [
        encode(ShareGroupCurrentMemberAssignmentKey(**names), None),
        encode(ShareGroupTargetAssignmentMemberKey(**names), None),
        encode(ShareGroupMemberMetadataKey(**names), None),
    ]


def group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[CoordinatorRecord]:
    """All that was written of a group."""
    members = [record for id_ in member_ids for record in member_tombstones(group_id, id_)]
    return [
        *members,
        encode(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        encode(ShareGroupStatePartitionMetadataKey(group_id=group_id), None),
        encode(ShareGroupMetadataKey(group_id=group_id), None),
    ]


def _grouped(partitions: Iterable[Partition]) -> list[ShareTopicPartitions]:
    return [
        ShareTopicPartitions(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in by_topic(partitions).items()
    ]


def _stage(states: Mapping[Uuid, TopicState]) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(
            topic_id=topic_id, topic_name=state.name, partitions=sorted(state.numbers)
        )
        for topic_id, state in sorted(states.items())
    ]


def _stage_of(topics: Iterable[TopicPartitionsInfo], written_ms: int) -> dict[Uuid, TopicState]:
    return {
        bytes(topic.topic_id): TopicState(topic.topic_name, frozenset(topic.partitions), written_ms)
        for topic in topics
    }
