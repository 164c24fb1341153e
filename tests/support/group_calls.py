"""Raw requests of both group protocols, for what no client library would send."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from penstock.wire.messages.consumer_protocol import (
    AssignedTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from .process import BrokerProcess
from .raw import RawClient
from .waiting import eventually

MEMBER_ID_REQUIRED = 79
JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT, FETCH, CONSUMER_HEARTBEAT = 9, 5, 4, 5, 9, 9, 1


def subscription(*topics: str) -> bytes:
    """What a consumer writes into JoinGroup: a version, then the body."""
    return b"\0\1" + bytes(ConsumerProtocolSubscription(topics=list(topics)).encode(1))


def assignment(topic: str, *partitions: int) -> bytes:
    assigned = [AssignedTopicPartition(topic=topic, partitions=list(partitions))]
    return b"\0\1" + bytes(ConsumerProtocolAssignment(assigned_partitions=assigned).encode(1))


def await_coordinator(client: RawClient, group: str) -> None:
    """Waits until the broker coordinates the group, and has read its groups."""

    def ready() -> bool:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        [found] = client.call(request, 4).coordinators
        return found.error_code == 0 and heartbeat(client, group or "x", 0, "x") == 25

    eventually(ready)


def join_request(group: str, member_id: str = "", **fields: Any) -> JoinGroupRequest:
    base = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
    }
    return JoinGroupRequest(group_id=group, member_id=member_id, **(base | fields))


def join(client: RawClient, group: str, member_id: str = "", **fields: Any) -> Any:
    """Joins as clients do: once for a member id and once with it."""
    answer = client.call(join_request(group, member_id, **fields), JOIN)
    if answer.error_code == MEMBER_ID_REQUIRED and not member_id:
        return client.call(join_request(group, answer.member_id, **fields), JOIN)
    return answer


def sync(
    client: RawClient, group: str, generation: int, member_id: str, **assignments: bytes
) -> Any:
    """Syncs; a leader gives the assignments by member id."""
    request = SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[
            SyncGroupRequestAssignment(member_id=name, assignment=data)
            for name, data in assignments.items()
        ],
    )
    return client.call(request, SYNC)


def heartbeat(
    client: RawClient, group: str, generation: int, member_id: str, instance: str | None = None
) -> int:
    """The error code of a classic heartbeat."""
    request = HeartbeatRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
    )
    return int(client.call(request, HEARTBEAT).error_code)


def leave(client: RawClient, group: str, member_id: str, instance: str | None = None) -> Any:
    identity = MemberIdentity(member_id=member_id, group_instance_id=instance)
    return client.call(LeaveGroupRequest(group_id=group, members=[identity]), LEAVE)


def commit(
    client: RawClient,
    group: str,
    topic: str,
    offset: int = 1,
    *,
    metadata: str | None = "",
    partition: int = 0,
    **fields: Any,
) -> int:
    """The error code of a commit for one partition."""
    data = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    request = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[data])],
        **fields,
    )
    [of_topic] = client.call(request, COMMIT).topics
    return int(of_topic.partitions[0].error_code)


def fetch_offsets(client: RawClient, group: str, topic: str | None, **fields: Any) -> Any:
    """The answer for one group: one partition of a topic, or all that is committed."""
    topics = (
        None if topic is None else [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    )
    asked = OffsetFetchRequestGroup(group_id=group, topics=topics, **fields)
    [answer] = client.call(OffsetFetchRequest(groups=[asked]), FETCH).groups
    return answer


def beat(
    client: RawClient,
    group: str,
    member_id: str,
    epoch: int,
    version: int = CONSUMER_HEARTBEAT,
    **fields: Any,
) -> Any:
    """A heartbeat of the newer protocol."""
    base: dict[str, Any] = {}
    if epoch == 0:
        base = {
            "rebalance_timeout_ms": 10_000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
        }
    request = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member_id, member_epoch=epoch, **(base | fields)
    )
    return client.call(request, version)


def owned(topic_id: bytes, *partitions: int) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=topic_id, partitions=list(partitions))]


@contextlib.contextmanager
def connected(broker: BrokerProcess, group: str) -> Iterator[RawClient]:
    """A connection to the coordinator of the group, which is ready."""
    with RawClient(broker.host, broker.port) as client:
        await_coordinator(client, group)
        yield client
