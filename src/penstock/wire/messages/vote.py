"""Vote: a candidate of the metadata quorum asks for a vote, or whether it would get one."""

from __future__ import annotations

from penstock.base.ids import Uuid
from penstock.wire.apis import ApiKey
from penstock.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class RequestPartitionData(Struct):
    partition_index: int = int32("0+")
    replica_epoch: int = int32("0+")
    replica_id: int = int32("0+")
    replica_directory_id: Uuid = uuid("1+", ignorable=True)
    voter_directory_id: Uuid = uuid("1+", ignorable=True)
    last_offset_epoch: int = int32("0+")
    last_offset: int = int64("0+")
    pre_vote: bool = boolean("2+")


class RequestTopicData(Struct):
    topic_name: str = string("0+")
    partitions: list[RequestPartitionData] = array(RequestPartitionData, "0+")


class VoteRequest(Message, api_key=ApiKey.VOTE, versions="0-2", flexible="0+"):
    cluster_id: str | None = string("0+", nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[RequestTopicData] = array(RequestTopicData, "0+")


class ResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    vote_granted: bool = boolean("0+")


class ResponseTopicData(Struct):
    topic_name: str = string("0+")
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData, "0+")


class NodeEndpoint(Struct):
    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class VoteResponse(Message, api_key=ApiKey.VOTE, versions="0-2", flexible="0+"):
    error_code: int = int16("0+")
    topics: list[ResponseTopicData] = array(ResponseTopicData, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)
