"""The quorum's requests and answers about its one partition, built and taken apart.

Every answer has the epoch and the leader that this replica knows, so that a sender that asked the
wrong replica finds the right one. A request that is not about the one partition has no part for us
(`None`), and is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from penstock.base.errors import ErrorCode
from penstock.base.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from penstock.raft.core import Core
from penstock.raft.effects import Destination
from penstock.raft.states import SnapshotFetch
from penstock.raft.types import OffsetAndEpoch, ReplicaKey
from penstock.wire.messages import (
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    vote,
)

VOTE_VERSION: Final = 2
BEGIN_QUORUM_EPOCH_VERSION: Final = 1
END_QUORUM_EPOCH_VERSION: Final = 1
FETCH_VERSION: Final = 18
FETCH_SNAPSHOT_VERSION: Final = 1
ADD_RAFT_VOTER_VERSION: Final = 1
REMOVE_RAFT_VOTER_VERSION: Final = 0
UPDATE_RAFT_VOTER_VERSION: Final = 0

PARTITION: Final = 0
T = TypeVar("T")


def only_partition(message: Any, index_field: str = "partition_index") -> Any | None:
    """The part about the metadata partition of a request with `topic_name` or `name`."""
    for topic in message.topics:
        name = getattr(topic, "topic_name", None) or getattr(topic, "name", None)
        if name == METADATA_TOPIC:
            for part in topic.partitions:
                if getattr(part, index_field) == PARTITION:
                    return part
    return None


def told_leader(core: Core) -> tuple[int, Destination | None]:
    leader_id = core.leader_id
    return leader_id, core.address_to_tell(leader_id) if leader_id >= 0 else None


# -- vote --------------------------------------------------------------------------------------


def vote_request(core: Core, voter: ReplicaKey, *, pre_vote: bool) -> vote.VoteRequest:
    end = core.log.end
    part = vote.RequestPartitionData(
        partition_index=PARTITION,
        replica_epoch=core.epoch,
        replica_id=core.me.id,
        replica_directory_id=core.me.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=end.epoch,
        last_offset=end.offset,
        pre_vote=pre_vote,
    )
    topic = vote.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])
    return vote.VoteRequest(cluster_id=core.config.cluster_id, voter_id=voter.id, topics=[topic])


def vote_response(core: Core, error: ErrorCode, *, granted: bool = False) -> vote.VoteResponse:
    leader_id, address = told_leader(core)
    part = vote.ResponsePartitionData(
        partition_index=PARTITION,
        error_code=error,
        leader_id=leader_id,
        leader_epoch=core.epoch,
        vote_granted=granted,
    )
    topic = vote.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[part])
    return vote.VoteResponse(topics=[topic], node_endpoints=_endpoints(vote, address))


# -- the beginning and the end of an epoch -----------------------------------------------------


def begin_request(core: Core, voter: ReplicaKey) -> begin_quorum_epoch.BeginQuorumEpochRequest:
    part = begin_quorum_epoch.RequestPartitionData(
        partition_index=PARTITION,
        voter_directory_id=voter.directory_id,
        leader_id=core.me.id,
        leader_epoch=core.epoch,
    )
    topic = begin_quorum_epoch.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])
    return begin_quorum_epoch.BeginQuorumEpochRequest(
        cluster_id=core.config.cluster_id,
        voter_id=voter.id,
        topics=[topic],
        leader_endpoints=[
            begin_quorum_epoch.LeaderEndpoint(name=e.name, host=e.host, port=e.port)
            for e in core.endpoints
        ],
    )


def begin_response(core: Core, error: ErrorCode) -> begin_quorum_epoch.BeginQuorumEpochResponse:
    leader_id, address = told_leader(core)
    part = begin_quorum_epoch.ResponsePartitionData(
        partition_index=PARTITION,
        error_code=error,
        leader_id=leader_id,
        leader_epoch=core.epoch,
    )
    topic = begin_quorum_epoch.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[part])
    return begin_quorum_epoch.BeginQuorumEpochResponse(
        topics=[topic], node_endpoints=_endpoints(begin_quorum_epoch, address)
    )


def end_request(core: Core, successors: list[ReplicaKey]) -> end_quorum_epoch.EndQuorumEpochRequest:
    part = end_quorum_epoch.RequestPartitionData(
        partition_index=PARTITION,
        leader_id=core.me.id,
        leader_epoch=core.epoch,
        preferred_successors=[key.id for key in successors],
        preferred_candidates=[
            end_quorum_epoch.ReplicaInfo(
                candidate_id=key.id, candidate_directory_id=key.directory_id
            )
            for key in successors
        ],
    )
    topic = end_quorum_epoch.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])
    return end_quorum_epoch.EndQuorumEpochRequest(
        cluster_id=core.config.cluster_id,
        topics=[topic],
        leader_endpoints=[
            end_quorum_epoch.LeaderEndpoint(name=e.name, host=e.host, port=e.port)
            for e in core.endpoints
        ],
    )


def end_response(core: Core, error: ErrorCode) -> end_quorum_epoch.EndQuorumEpochResponse:
    leader_id, address = told_leader(core)
    part = end_quorum_epoch.ResponsePartitionData(
        partition_index=PARTITION,
        error_code=error,
        leader_id=leader_id,
        leader_epoch=core.epoch,
    )
    topic = end_quorum_epoch.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[part])
    return end_quorum_epoch.EndQuorumEpochResponse(
        topics=[topic], node_endpoints=_endpoints(end_quorum_epoch, address)
    )


# -- fetch -------------------------------------------------------------------------------------


def fetch_request(core: Core, *, max_wait_ms: int) -> fetch.FetchRequest:
    """From the flushed end of the log: the leader takes everything below it as durable here."""
    log, config = core.log, core.config
    part = fetch.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=core.epoch,
        fetch_offset=log.flushed_offset,
        last_fetched_epoch=max(log.epoch_at(log.flushed_offset - 1), 0),
        log_start_offset=log.start_offset,
        partition_max_bytes=config.fetch_max_bytes,
        replica_directory_id=core.me.directory_id,
        high_watermark=core.high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=config.cluster_id,
        replica_state=fetch.ReplicaState(replica_id=core.me.id),
        max_wait_ms=max_wait_ms,
        max_bytes=config.fetch_max_bytes,
        topics=[fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[part])],
    )


def fetch_part(request: fetch.FetchRequest) -> fetch.FetchPartition | None:
    for topic in request.topics:
        if topic.topic_id == METADATA_TOPIC_ID or topic.topic == METADATA_TOPIC:
            for part in topic.partitions:
                if part.partition == PARTITION:
                    return part
    return None


def fetch_response(
    core: Core,
    error: ErrorCode = ErrorCode.NONE,
    *,
    diverging: OffsetAndEpoch | None = None,
    snapshot: OffsetAndEpoch | None = None,
) -> fetch.FetchResponse:
    leader_id, address = told_leader(core)
    part = fetch.PartitionData(
        partition_index=PARTITION,
        error_code=error,
        high_watermark=core.high_watermark,
        log_start_offset=core.log.start_offset,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=core.epoch),
        records=b"",
    )
    if diverging is not None:
        part.diverging_epoch = fetch.EpochEndOffset(
            epoch=diverging.epoch, end_offset=diverging.offset
        )
    if snapshot is not None:
        part.snapshot_id = fetch.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch)
    endpoints = []
    if address is not None:
        endpoints = [
            fetch.NodeEndpoint(node_id=address.node_id, host=address.host, port=address.port)
        ]
    return fetch.FetchResponse(
        responses=[
            fetch.FetchableTopicResponse(
                topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[part]
            )
        ],
        node_endpoints=endpoints,
    )


# -- fetch of a snapshot -----------------------------------------------------------------------


def fetch_snapshot_request(core: Core, state: SnapshotFetch) -> fetch_snapshot.FetchSnapshotRequest:
    part = fetch_snapshot.RequestPartitionSnapshot(
        partition=PARTITION,
        current_leader_epoch=core.epoch,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=state.id.offset, epoch=state.id.epoch),
        position=state.position,
        replica_directory_id=core.me.directory_id,
    )
    topic = fetch_snapshot.RequestTopicSnapshot(name=METADATA_TOPIC, partitions=[part])
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=core.config.cluster_id,
        replica_id=core.me.id,
        max_bytes=core.config.snapshot_chunk_bytes,
        topics=[topic],
    )


def fetch_snapshot_response(
    core: Core, error: ErrorCode, snapshot_id: OffsetAndEpoch, position: int
) -> fetch_snapshot.FetchSnapshotResponse:
    leader_id, address = told_leader(core)
    part = fetch_snapshot.ResponsePartitionSnapshot(
        index=PARTITION,
        error_code=error,
        snapshot_id=fetch_snapshot.SnapshotId(
            end_offset=snapshot_id.offset, epoch=snapshot_id.epoch
        ),
        current_leader=fetch_snapshot.LeaderIdAndEpoch(
            leader_id=leader_id, leader_epoch=core.epoch
        ),
        position=position,
        unaligned_records=b"",
    )
    topic = fetch_snapshot.ResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[part])
    return fetch_snapshot.FetchSnapshotResponse(
        topics=[topic], node_endpoints=_endpoints(fetch_snapshot, address)
    )


def told_address(response: Any, leader_id: int, asked: Destination) -> Destination | None:
    """The address of `leader_id` in an answer of any kind of `asked`, whose listener is meant."""
    for endpoint in response.node_endpoints:
        if endpoint.node_id == leader_id:
            return Destination(leader_id, endpoint.host, endpoint.port, asked.listener)
    return None


def is_ours(core: Core, cluster_id: str | None) -> bool:
    return cluster_id is None or core.config.cluster_id in (None, cluster_id)


def _endpoints(module: Any, address: Destination | None) -> list[Any]:
    if address is None:
        return []
    return [module.NodeEndpoint(node_id=address.node_id, host=address.host, port=address.port)]


def refused(response_type: Callable[..., T], error: ErrorCode) -> T:
    """An answer with only an error code."""
    return response_type(error_code=error)
