"""EndQuorumEpoch: the quorum's leader resigns and names who should follow it."""

from __future__ import annotations

from penstock.base.ids import Uuid
from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, Struct, array, int16, int32, string, uint16, uuid


class ReplicaInfo(Struct):
    candidate_id: int = int32("1+")
    candidate_directory_id: Uuid = uuid("1+")


class RequestPartitionData(Struct):
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    preferred_successors: list[int] = array(int32, "0", ignorable=True)
    preferred_candidates: list[ReplicaInfo] = array(ReplicaInfo, "1+", ignorable=True)


class RequestTopicData(Struct):
    topic_name: str = string("0+")
    partitions: list[RequestPartitionData] = array(RequestPartitionData, "0+")


class LeaderEndpoint(Struct):
    name: str = string("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class EndQuorumEpochRequest(
    Message, api_key=ApiKey.END_QUORUM_EPOCH, versions="0-1", flexible="1+"
):
    cluster_id: str | None = string("0+", nullable="0+", default=None)
    topics: list[RequestTopicData] = array(RequestTopicData, "0+")
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+", ignorable=True)


class ResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class ResponseTopicData(Struct):
    topic_name: str = string("0+")
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData, "0+")


class NodeEndpoint(Struct):
    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class EndQuorumEpochResponse(
    Message, api_key=ApiKey.END_QUORUM_EPOCH, versions="0-1", flexible="1+"
):
    error_code: int = int16("0+")
    topics: list[ResponseTopicData] = array(ResponseTopicData, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)
