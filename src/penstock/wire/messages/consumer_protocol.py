"""What consumers write into the opaque parts of JoinGroup and SyncGroup."""

from __future__ import annotations

from penstock.wire.schema import Message, Struct, array, binary, int32, string


# Kafka calls the structures of both messages `TopicPartition`.
class OwnedTopicPartition(Struct):
    topic: str = string("1+")
    partitions: list[int] = array(int32, "1+")


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: list[str] = array(string, "0+")
    user_data: bytes | None = binary("0+", nullable="0+", default=None)
    owned_partitions: list[OwnedTopicPartition] = array(OwnedTopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class AssignedTopicPartition(Struct):
    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[AssignedTopicPartition] = array(AssignedTopicPartition, "0+")
    user_data: bytes | None = binary("0+", nullable="0+", default=None)
