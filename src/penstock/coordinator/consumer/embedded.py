"""The consumer embedded protocol: what consumers of the classic protocol write into the opaque
parts of JoinGroup and SyncGroup, between topic names there and topic ids here.

A version as int16 stands before both; members are answered in the version that they speak.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from penstock.base.errors import ApiError, ErrorCode
from penstock.coordinator.consumer.partitions import Partition, by_topic
from penstock.coordinator.topics import TopicsView
from penstock.wire.errors import WireError
from penstock.wire.messages.consumer_protocol import (
    AssignedTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

_VERSION = struct.Struct(">h")
_VERSION_MAX = ConsumerProtocolSubscription.VERSIONS.stop - 1


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """The subscription in a member's metadata; ApiError if there is none."""
    try:
        subscription, _ = ConsumerProtocolSubscription.decode_from(
            metadata, _VERSION.size, _version(metadata)
        )
    except (WireError, struct.error) as e:
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"The metadata of the member is no subscription of a consumer: {e}",
        ) from e
    return subscription


def read_assignment(assignment: bytes, topics: TopicsView) -> set[Partition]:
    """The partitions that a leader has handed out, of topics that exist. ApiError if there is more
    than partitions: what an assignor of the members' own keeps there would be lost.
    """
    if not assignment:
        return set()
    try:
        decoded, _ = ConsumerProtocolAssignment.decode_from(
            assignment, _VERSION.size, _version(assignment)
        )
    except (WireError, struct.error) as e:
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"The assignment of the member is none of a consumer: {e}",
        ) from e
    if decoded.user_data:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "The assignment has user data.")
    return to_partitions(((t.topic, t.partitions) for t in decoded.assigned_partitions), topics)


def write_assignment(partitions: Iterable[Partition], metadata: bytes, topics: TopicsView) -> bytes:
    """The partitions in the form that a member with this metadata reads."""
    version = _version(metadata)
    assigned = []
    for topic_id, numbers in by_topic(partitions).items():
        name = topics.name_of(topic_id)
        if name is not None:
            assigned.append(AssignedTopicPartition(topic=name, partitions=numbers))
    body = ConsumerProtocolAssignment(assigned_partitions=assigned).encode(version)
    return _VERSION.pack(version) + body


def to_partitions(named: Iterable[tuple[str, list[int]]], topics: TopicsView) -> set[Partition]:
    """Partitions by topic id; those of unknown topics are left out."""
    found: set[Partition] = set()
    for name, numbers in named:
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            found.update((topic_id, number) for number in numbers)
    return found


def _version(raw: bytes) -> int:
    """The version to read and write in: members of a later one read ours as well."""
    (version,) = _VERSION.unpack_from(raw)
    if version < 0:
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"There is no consumer protocol {version}."
        )
    return min(int(version), _VERSION_MAX)
