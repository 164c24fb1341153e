"""The records of `__consumer_offsets`, in Kafka's own formats.

A key is its type as int16 and its fields; a value is its version as int16 and its fields; a null
value is a tombstone. `WRITTEN_VERSIONS` says which version is written of each value; all versions
are read. Types that are declared neither here nor in `share_group_records` or
`streams_group_records` are read as None and left alone, as Kafka does.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, TypeAlias, cast

from penstock.base.errors import CorruptRecord
from penstock.base.ids import NO_LEADER_EPOCH, Uuid
from penstock.coordinator.effects import CoordinatorRecord
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
)
from penstock.coordinator.streams_group_records import (
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
)
from penstock.wire.errors import WireError
from penstock.wire.schema import (
    Message,
    Struct,
    array,
    binary,
    int8,
    int32,
    int64,
    string,
    uuid,
)
from penstock.wire.schema import struct as structure

# -- offsets -----------------------------------------------------------------------------------


class OffsetCommitKey(Message, api_key=1, versions="0"):
    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    offset: int = int64("0+")
    leader_epoch: int = int32("3+", default=NO_LEADER_EPOCH, ignorable=True)
    metadata: str = string("0+")
    commit_timestamp: int = int64("0+")
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: Uuid = uuid("4+", tag=0, ignorable=True)


# -- classic groups ----------------------------------------------------------------------------


class GroupMetadataKey(Message, api_key=2, versions="0"):
    group: str = string("0")


class MemberMetadata(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32("0+")
    subscription: bytes = binary("0+")
    assignment: bytes = binary("0+")


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    protocol_type: str = string("0+")
    generation: int = int32("0+")
    protocol: str | None = string("0+", nullable="0+")
    leader: str | None = string("0+", nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata, "0+")


# -- consumer groups (KIP-848) -----------------------------------------------------------------


class ConsumerGroupMetadataKey(Message, api_key=3, versions="0"):
    group_id: str = string("0")


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    metadata_hash: int = int64("0+", tag=0)


class ConsumerGroupPartitionMetadataKey(Message, api_key=4, versions="0"):
    """Only its tombstones are written: Kafka 4.1 and later keep a hash instead."""

    group_id: str = string("0")


class PartitionMetadata(Struct):
    partition: int = int32("0+")
    racks: list[str] = array(string, "0+")


class TopicMetadata(Struct):
    topic_id: Uuid = uuid("0+")
    topic_name: str = string("0+")
    num_partitions: int = int32("0+")
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata, "0+")


class ConsumerGroupPartitionMetadataValue(Message, versions="0", flexible="0+"):
    topics: list[TopicMetadata] = array(TopicMetadata, "0+")


class ConsumerGroupMemberMetadataKey(Message, api_key=5, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class ClassicProtocol(Struct):
    name: str = string("0+")
    metadata: bytes = binary("0+")


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = int32("0+")
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol, "0+")


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array(string, "0+")
    subscribed_topic_regex: str | None = string("0+", nullable="0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    server_assignor: str | None = string("0+", nullable="0+")
    # The default is not null in Kafka's own classes either: say None for a member of its own.
    classic_member_metadata: ClassicMemberMetadata | None = structure(
        ClassicMemberMetadata, "0+", nullable="0+", tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message, api_key=6, versions="0"):
    group_id: str = string("0")


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", tag=0)


class ConsumerGroupTargetAssignmentMemberKey(Message, api_key=7, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


# Kafka calls it `TopicPartition`.
class TargetTopicPartitions(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: list[int] = array(int32, "0+")


class ConsumerGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[TargetTopicPartitions] = array(TargetTopicPartitions, "0+")


class ConsumerGroupCurrentMemberAssignmentKey(Message, api_key=8, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class TopicPartitions(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: list[int] = array(int32, "0+")
    assignment_epochs: list[int] | None = array(int32, "0+", nullable="0+", tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions, "0+")


class ConsumerGroupRegularExpressionKey(Message, api_key=16, versions="0"):
    group_id: str = string("0")
    regular_expression: str = string("0")


class ConsumerGroupRegularExpressionValue(Message, versions="0", flexible="0+"):
    topics: list[str] = array(string, "0+")
    version: int = int64("0+")
    timestamp: int = int64("0+")


# -- keys and values as bytes ------------------------------------------------------------------

ClassicGroupKey: TypeAlias = GroupMetadataKey
ConsumerGroupKey: TypeAlias = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)
ShareGroupKey: TypeAlias = (
    ShareGroupMemberMetadataKey
    | ShareGroupMetadataKey
    | ShareGroupTargetAssignmentMetadataKey
    | ShareGroupTargetAssignmentMemberKey
    | ShareGroupCurrentMemberAssignmentKey
    | ShareGroupStatePartitionMetadataKey
)
StreamsGroupKey: TypeAlias = (
    StreamsGroupMetadataKey
    | StreamsGroupMemberMetadataKey
    | StreamsGroupTargetAssignmentMetadataKey
    | StreamsGroupTargetAssignmentMemberKey
    | StreamsGroupCurrentMemberAssignmentKey
    | StreamsGroupTopologyKey
)
GroupKey: TypeAlias = ClassicGroupKey | ConsumerGroupKey | ShareGroupKey | StreamsGroupKey
RecordKey: TypeAlias = OffsetCommitKey | GroupKey

WRITTEN_VERSIONS: Final[dict[type[Message], int]] = {
    OffsetCommitValue: 4,
    GroupMetadataValue: 3,
    ConsumerGroupMetadataValue: 0,
    ConsumerGroupPartitionMetadataValue: 0,
    ConsumerGroupMemberMetadataValue: 0,
    ConsumerGroupTargetAssignmentMetadataValue: 0,
    ConsumerGroupTargetAssignmentMemberValue: 0,
    ConsumerGroupCurrentMemberAssignmentValue: 0,
    ConsumerGroupRegularExpressionValue: 0,
    ShareGroupMemberMetadataValue: 0,
    ShareGroupMetadataValue: 0,
    ShareGroupTargetAssignmentMetadataValue: 0,
    ShareGroupTargetAssignmentMemberValue: 0,
    ShareGroupCurrentMemberAssignmentValue: 0,
    ShareGroupStatePartitionMetadataValue: 0,
    StreamsGroupMetadataValue: 0,
    StreamsGroupMemberMetadataValue: 0,
    StreamsGroupTargetAssignmentMetadataValue: 0,
    StreamsGroupTargetAssignmentMemberValue: 0,
    StreamsGroupCurrentMemberAssignmentValue: 0,
    StreamsGroupTopologyValue: 0,
}
VALUE_TYPES: Final[dict[type[Message], type[Message]]] = {
    OffsetCommitKey: OffsetCommitValue,
    GroupMetadataKey: GroupMetadataValue,
    ConsumerGroupMetadataKey: ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey: ConsumerGroupPartitionMetadataValue,
    ConsumerGroupMemberMetadataKey: ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupRegularExpressionKey: ConsumerGroupRegularExpressionValue,
    ShareGroupMemberMetadataKey: ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey: ShareGroupMetadataValue,
    ShareGroupTargetAssignmentMetadataKey: ShareGroupTargetAssignmentMetadataValue,
    ShareGroupTargetAssignmentMemberKey: ShareGroupTargetAssignmentMemberValue,
    ShareGroupCurrentMemberAssignmentKey: ShareGroupCurrentMemberAssignmentValue,
    ShareGroupStatePartitionMetadataKey: ShareGroupStatePartitionMetadataValue,
    StreamsGroupMetadataKey: StreamsGroupMetadataValue,
    StreamsGroupMemberMetadataKey: StreamsGroupMemberMetadataValue,
    StreamsGroupTargetAssignmentMetadataKey: StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTargetAssignmentMemberKey: StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupCurrentMemberAssignmentKey: StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupTopologyKey: StreamsGroupTopologyValue,
}
_KEYS: Final = {cast(int, cls.API_KEY): cls for cls in VALUE_TYPES}
# Offsets were once keyed by type 0, with the same fields; Kafka still reads them.
_KEYS[0] = OffsetCommitKey

_INT16: Final = struct.Struct(">h")


class Decoded(NamedTuple):
    """A record of a known type; `value` is None for a tombstone."""

    key: RecordKey
    value: Message | None


def encode(key: RecordKey, value: Message | None) -> CoordinatorRecord:
    """The log record that says `value` of `key`; None is a tombstone."""
    assert key.API_KEY is not None
    raw_key = _INT16.pack(key.API_KEY) + key.encode(0)
    if value is None:
        return CoordinatorRecord(raw_key, None)
    version = WRITTEN_VERSIONS[type(value)]
    if isinstance(value, OffsetCommitValue) and value.expire_timestamp >= 0:
        version = 1  # the only one that has the field
    return CoordinatorRecord(raw_key, _INT16.pack(version) + value.encode(version))


def decode(key: bytes, value: bytes | None) -> Decoded | None:
    """The record behind stored bytes; None for a type that is not ours. CorruptRecord for bytes
    that are no such record.
    """
    try:
        (kind,) = _INT16.unpack_from(key)
        cls = _KEYS.get(kind)
        if cls is None:
            return None
        decoded = cast(RecordKey, cls.decode(key[2:], 0))
        if value is None:
            return Decoded(decoded, None)
        (version,) = _INT16.unpack_from(value)
        return Decoded(decoded, VALUE_TYPES[cls].decode(value[2:], version))
    except (WireError, struct.error) as e:
        raise CorruptRecord(f"a record of the offsets topic cannot be read: {e}") from e
