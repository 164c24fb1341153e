"""DescribeQuorum: the quorum as its leader sees it."""

from __future__ import annotations

from penstock.base.errors import ErrorCode
from penstock.base.ids import METADATA_TOPIC
from penstock.raft import messages
from penstock.raft.core import Core
from penstock.raft.states import Leader, Progress
from penstock.raft.types import ReplicaKey
from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)


def on_describe(core: Core, token: object, request: DescribeQuorumRequest, now_ms: int) -> None:
    if messages.only_partition(request) is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        core.reply(token, messages.refused(DescribeQuorumResponse, error))
        return
    role = core.role
    if not isinstance(role, Leader):
        part = ResponsePartitionData(
            partition_index=messages.PARTITION,
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            error_message="Ask the leader of the quorum.",
            leader_id=core.leader_id,
            leader_epoch=core.epoch,
            high_watermark=-1,
        )
        core.reply(token, _response(part, []))
        return
    part = ResponsePartitionData(
        partition_index=messages.PARTITION,
        leader_id=core.me.id,
        leader_epoch=core.epoch,
        high_watermark=core.high_watermark if core.high_watermark > role.start_offset else -1,
        current_voters=[_replica(core, role, key, now_ms) for key in core.voters.keys],
        observers=[
            _replica(core, role, key, now_ms)
            for key in [*([] if core.is_voter else [core.me]), *sorted(role.replicas)]
            if key not in core.voters
        ],
    )
    nodes = [
        Node(
            node_id=node.key.id,
            listeners=[Listener(name=e.name, host=e.host, port=e.port) for e in node.endpoints],
        )
        for node in core.voters
    ]
    core.reply(token, _response(part, nodes))


def _response(part: ResponsePartitionData, nodes: list[Node]) -> DescribeQuorumResponse:
    topic = ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[part])
    return DescribeQuorumResponse(topics=[topic], nodes=nodes)


def _replica(core: Core, role: Leader, key: ReplicaKey, now_ms: int) -> ReplicaState:
    if key == core.me:
        return ReplicaState(
            replica_id=key.id,
            replica_directory_id=key.directory_id,
            log_end_offset=core.log.end_offset,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
    progress = role.replicas.get(key) or Progress()
    return ReplicaState(
        replica_id=key.id,
        replica_directory_id=key.directory_id,
        log_end_offset=progress.end_offset,
        last_fetch_timestamp=progress.last_fetch_ms,
        last_caught_up_timestamp=progress.last_caught_up_ms,
    )
