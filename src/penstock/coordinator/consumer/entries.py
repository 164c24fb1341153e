"""The records of a consumer group: from its parts to the log and back.

Kafka 4.3 writes no ConsumerGroupPartitionMetadata any more: the hash in ConsumerGroupMetadata has
taken its place. Only its tombstone is written, for groups that an older coordinator left behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.coordinator.consumer.member import ClassicPart, Member, Profile, Progress
from penstock.coordinator.consumer.partitions import Partition, by_topic, flatten
from penstock.coordinator.effects import CoordinatorRecord
from penstock.coordinator.reconcile import MemberState
from penstock.coordinator.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TargetTopicPartitions,
    TopicPartitions,
    encode,
)


def group_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return encode(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return encode(ConsumerGroupMetadataKey(group_id=group_id), None)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    return encode(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def profile_record(group_id: str, member: Member) -> CoordinatorRecord:
    profile = member.profile
    classic = profile.classic
    value = ConsumerGroupMemberMetadataValue(
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=list(profile.topic_names),
        subscribed_topic_regex=profile.topic_regex,
        rebalance_timeout_ms=profile.rebalance_timeout_ms,
        server_assignor=profile.server_assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=metadata)
                for name, metadata in classic.protocols
            ],
        ),
    )
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return encode(key, value)


def profile_of(value: ConsumerGroupMemberMetadataValue) -> Profile:
    classic = value.classic_member_metadata
    return Profile(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=tuple(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicPart(
            classic.session_timeout_ms,
            tuple((p.name, bytes(p.metadata)) for p in classic.supported_protocols),
        ),
    )


def target_record(
    group_id: str, member_id: str, partitions: Iterable[Partition]
) -> CoordinatorRecord:
    return encode(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TargetTopicPartitions(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in by_topic(partitions).items()
            ]
        ),
    )


def target_of(value: ConsumerGroupTargetAssignmentMemberValue) -> frozenset[Partition]:
    return frozenset(flatten(value.topic_partitions))


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    return encode(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp_ms
        ),
    )


def target_epoch_tombstone(group_id: str) -> CoordinatorRecord:
    return encode(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)


def progress_record(group_id: str, member: Member) -> CoordinatorRecord:
    progress = member.progress
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=progress.epoch,
        previous_member_epoch=progress.previous_epoch,
        state=progress.state,
        assigned_partitions=_with_epochs(progress.assigned),
        partitions_pending_revocation=_with_epochs(progress.revoking),
    )
    return encode(key, value)


def progress_of(value: ConsumerGroupCurrentMemberAssignmentValue) -> Progress:
    try:
        state = MemberState(value.state)
    except ValueError:
        state = MemberState.UNKNOWN
    return Progress(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=state,
        assigned=dict(_epochs_of(value.assigned_partitions, value.member_epoch)),
        revoking=dict(_epochs_of(value.partitions_pending_revocation, value.member_epoch)),
    )


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """All that was written of a member, in Kafka's order."""
    return [
        progress_tombstone(group_id, member_id),
        target_tombstone(group_id, member_id),
        profile_tombstone(group_id, member_id),
    ]


def progress_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return encode(key, None)


def target_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return encode(key, None)


def profile_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return encode(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)


def regex_record(
    group_id: str, regex: str, topics: Iterable[str], version: int, timestamp_ms: int
) -> CoordinatorRecord:
    return encode(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(
            topics=sorted(topics), version=version, timestamp=timestamp_ms
        ),
    )


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return encode(key, None)


def _with_epochs(epochs: Mapping[Partition, int]) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic_id,
            partitions=numbers,
            assignment_epochs=[epochs[topic_id, number] for number in numbers],
        )
        for topic_id, numbers in by_topic(epochs).items()
    ]


def _epochs_of(
    grouped: Iterable[TopicPartitions], member_epoch: int
) -> Iterator[tuple[Partition, int]]:
    """Records before Kafka 4.2 carry no epochs: the member's own stands for them."""
    for entry in grouped:
        epochs = entry.assignment_epochs or [member_epoch] * len(entry.partitions)
        for number, epoch in zip(entry.partitions, epochs, strict=True):
            yield (bytes(entry.topic_id), number), epoch
