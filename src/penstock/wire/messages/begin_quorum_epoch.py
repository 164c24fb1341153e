"""BeginQuorumEpoch: the quorum's new leader makes itself known to the voters."""

from __future__ import annotations

from penstock.base.ids import Uuid
from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, Struct, array, int16, int32, string, uint16, uuid


class RequestPartitionData(Struct):
    partition_index: int = int32("0+")
    voter_directory_id: Uuid = uuid("1+", ignorable=True)
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class RequestTopicData(Struct):
    topic_name: str = string("0+")
    partitions: list[RequestPartitionData] = array(RequestPartitionData, "0+")


class LeaderEndpoint(Struct):
    name: str = string("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class BeginQuorumEpochRequest(
    Message, api_key=ApiKey.BEGIN_QUORUM_EPOCH, versions="0-1", flexible="1+"
):
    cluster_id: str | None = string("0+", nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
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


class BeginQuorumEpochResponse(
    Message, api_key=ApiKey.BEGIN_QUORUM_EPOCH, versions="0-1", flexible="1+"
):
    error_code: int = int16("0+")
    topics: list[ResponseTopicData] = array(ResponseTopicData, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)
