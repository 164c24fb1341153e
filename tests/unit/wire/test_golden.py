"""Bytes written down by hand: each shows one rule of the format."""

from __future__ import annotations

import pytest

from penstock.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.control_records import EndTxnMarker
from penstock.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from penstock.wire.messages.fetch import FetchRequest, ReplicaState
from penstock.wire.messages.header import RequestHeader, ResponseHeader
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.schema import Message

HEADER = RequestHeader(request_api_key=3, request_api_version=9, correlation_id=258, client_id="me")
PRODUCE = ProduceRequest(
    acks=-1,
    timeout_ms=1500,
    topic_data=[
        TopicProduceData(
            name="t", partition_data=[PartitionProduceData(index=7, records=b"\x01\x02\x03")]
        )
    ],
)

GOLDEN: dict[str, tuple[Message, int, str]] = {
    "request header": (HEADER, 1, "0003 0009 00000102 0002 6d65"),
    # The client id keeps its two-byte length; only the tag section (00) is new.
    "flexible request header": (HEADER, 2, "0003 0009 00000102 0002 6d65 00"),
    "no client id": (RequestHeader(client_id=None), 1, "0000 0000 00000000 ffff"),
    "response header": (ResponseHeader(correlation_id=5), 0, "00000005"),
    "flexible response header": (ResponseHeader(correlation_id=5), 1, "00000005 00"),
    "empty message": (ApiVersionsRequest(), 0, ""),
    "compact strings": (
        ApiVersionsRequest(client_software_name="ab", client_software_version="1"),
        3,
        "03 6162 02 31 00",
    ),
    "array of structures": (
        ApiVersionsResponse(
            error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]
        ),
        0,
        "0023 00000001 0012 0000 0004",
    ),
    "flexible array of structures": (
        ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]),
        3,
        "0000 02 0012 0000 0004 00 00000000 00",
    ),
    # Tag 1, eight bytes: the only tagged field that is not at its default.
    "tagged field": (
        ApiVersionsResponse(finalized_features_epoch=2),
        3,
        "0000 01 00000000 01 01 08 0000000000000002",
    ),
    "tagged structure": (
        FetchRequest(replica_state=ReplicaState(replica_id=1, replica_epoch=2), max_bytes=16),
        15,
        "00000000 00000000 00000010 00 00000000 ffffffff 01 01 01"
        " 01 01 0d 00000001 0000000000000002 00",
    ),
    "records": (
        PRODUCE,
        3,
        "ffff ffff 000005dc 00000001 0001 74 00000001 00000007 00000003 010203",
    ),
    "flexible records": (PRODUCE, 9, "00 ffff 000005dc 02 02 74 02 00000007 04 010203 00 00 00"),
    "null array": (MetadataRequest(topics=None), 1, "ffffffff"),
    "null array, compact": (MetadataRequest(topics=None), 9, "00 01 00 00 00"),
    "uuid and null string": (
        MetadataRequest(topics=[MetadataRequestTopic(topic_id=bytes(range(16)), name=None)]),
        12,
        "02 000102030405060708090a0b0c0d0e0f 00 00 01 00 00",
    ),
    "array of numbers": (
        MetadataResponse(
            topics=[
                MetadataResponseTopic(
                    name="t",
                    partitions=[MetadataResponsePartition(replica_nodes=[1, 2], isr_nodes=[2])],
                )
            ],
        ),
        0,
        "00000000 00000001 0000 0001 74 00000001"
        " 0000 00000000 00000000 00000002 00000001 00000002 00000001 00000002",
    ),
    "structure that may be null": (
        DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="a", partition_index=3)),
        0,
        "01 000007d0 01 02 61 00000003 00 00",
    ),
    "null structure": (DescribeTopicPartitionsRequest(), 0, "01 000007d0 ff 00"),
    "control record": (EndTxnMarker(coordinator_epoch=4), 0, "00000004"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_bytes(name: str) -> None:
    message, version, text = GOLDEN[name]
    raw = bytes.fromhex(text)
    assert message.encode(version) == raw
    assert type(message).decode(raw, version) == message


def test_long_compact_lengths_take_more_bytes() -> None:
    message = ApiVersionsRequest(client_software_name="n" * 200)
    assert message.encode(3)[:2] == b"\xc9\x01"  # 201 = 0x49 + 1 * 128
    assert ApiVersionsRequest.decode(message.encode(3), 3) == message


def test_metadata_v0_asks_for_all_topics_with_an_empty_array() -> None:
    assert MetadataRequest(topics=[]).encode(0) == bytes(4)
