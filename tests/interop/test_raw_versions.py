"""Versions as real clients send them, old and new, and those that are refused."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from penstock.wire.apis import ApiKey
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.wire.messages.produce import ProduceRequest
from support import batches
from support.calls import (
    fetch,
    fetch_request,
    find_topic,
    init_producer,
    list_offset,
    produce,
    produce_request,
)
from support.helpers import TopicMaker
from support.process import BrokerProcess
from support.raw import Closed, RawClient

EARLIEST, LATEST = -2, -1
UNSUPPORTED_VERSION = 35
ZERO_ID = bytes(16)


@pytest.fixture
def raw(node: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(node.host, node.port) as client:
        yield client


@pytest.mark.parametrize("version", range(5))
def test_api_versions(raw: RawClient, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    answer = raw.call(request, version)
    assert answer.error_code == 0
    offered = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    # Produce is offered from 0 for the sake of old librdkafka, though 0 to 2 are refused.
    assert offered[ApiKey.PRODUCE] == (0, 13)
    assert offered[ApiKey.FETCH] == (4, 18)
    assert offered[ApiKey.LIST_OFFSETS] == (1, 11)
    assert offered[ApiKey.METADATA] == (0, 13)
    assert offered[ApiKey.API_VERSIONS] == (0, 4)
    assert offered[ApiKey.CREATE_TOPICS] == (2, 7)
    assert offered[ApiKey.DELETE_TOPICS] == (1, 6)
    assert offered[ApiKey.INIT_PRODUCER_ID] == (0, 5)
    assert offered[ApiKey.OFFSET_FOR_LEADER_EPOCH] == (2, 4)
    assert offered[ApiKey.DESCRIBE_CONFIGS] == (1, 4)


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(
    raw: RawClient, version: int
) -> None:
    raw.send_frame(raw.header(ApiKey.API_VERSIONS, version) + b"whatever a later version holds")
    payload = raw.receive_frame()
    assert struct.unpack(">i", payload[:4]) == (0,)
    answer = ApiVersionsResponse.decode(payload[4:], 0)
    assert answer.error_code == UNSUPPORTED_VERSION
    [own] = [api for api in answer.api_keys if api.api_key == ApiKey.API_VERSIONS]
    assert (own.min_version, own.max_version) == (0, 4)
    assert raw.call(ApiVersionsRequest(), 0).error_code == 0


@pytest.mark.parametrize(
    ("name", "version"), [("", "1"), ("raw", ""), ("bad name!", "1"), ("raw", "-")]
)
def test_a_bad_client_name_is_an_invalid_request(raw: RawClient, name: str, version: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    assert raw.call(request, 3).error_code == 42


@pytest.mark.parametrize("version", range(14))
def test_metadata(node: BrokerProcess, raw: RawClient, topic: TopicMaker, version: int) -> None:
    name = topic(partitions=2)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    answer = raw.call(request, version)
    assert [(b.host, b.port) for b in answer.brokers] == [("127.0.0.1", node.port)]
    [found] = answer.topics
    assert (found.error_code, found.name) == (0, name)
    assert sorted(p.partition_index for p in found.partitions) == [0, 1]
    assert all(p.leader_id == answer.brokers[0].node_id for p in found.partitions)
    if version >= 1:
        assert answer.controller_id == answer.brokers[0].node_id
    if version >= 2:
        assert answer.cluster_id
    if version >= 10:
        assert found.topic_id != ZERO_ID


def test_metadata_of_everything_and_of_nothing(raw: RawClient, topic: TopicMaker) -> None:
    name = topic()
    assert name in [t.name for t in raw.call(MetadataRequest(topics=[]), 0).topics]
    assert raw.call(MetadataRequest(topics=[]), 1).topics == []
    for version in (1, 5, 12):
        assert name in [t.name for t in raw.call(MetadataRequest(topics=None), version).topics]


def test_metadata_by_id(raw: RawClient, topic: TopicMaker) -> None:
    known = find_topic(raw, topic())
    request = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=known.id)])
    [found] = raw.call(request, 12).topics
    assert (found.error_code, found.name, found.topic_id) == (0, known.name, known.id)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=b"\x07" * 16)])
    [found] = raw.call(request, 12).topics
    assert (found.error_code, found.name, found.topic_id) == (100, None, b"\x07" * 16)


@pytest.mark.parametrize("version", range(3, 14))
def test_produce(raw: RawClient, topic: TopicMaker, version: int) -> None:
    known = find_topic(raw, topic())
    first = produce(raw, known, batches.batch([b"a", b"b"]), version)
    second = produce(raw, known, batches.batch([b"c"]), version, acks=1)
    assert (first.error_code, first.base_offset, first.log_append_time_ms) == (0, 0, -1)
    assert (second.error_code, second.base_offset) == (0, 2)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_below_3_is_refused(raw: RawClient, topic: TopicMaker, version: int) -> None:
    name = topic().encode()
    records = batches.old_message(b"x", 0)
    body = struct.pack(">hii", -1, 1000, 1) + struct.pack(">h", len(name)) + name
    body += struct.pack(">iii", 1, 0, len(records)) + records
    raw.send_frame(raw.header(ApiKey.PRODUCE, version) + body)
    with pytest.raises(Closed):
        raw.receive_frame()


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch(raw: RawClient, topic: TopicMaker, version: int) -> None:
    known = find_topic(raw, topic())
    produce(raw, known, batches.batch([b"a", b"b"]))
    answer = fetch(raw, known, 0, version)
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 2, 2)
    assert not answer.aborted_transactions
    [head] = batches.heads(answer.records)
    assert (head.base_offset, head.last_offset, head.record_count) == (0, 1, 2)
    if version >= 5:
        assert answer.log_start_offset == 0


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets(raw: RawClient, topic: TopicMaker, version: int) -> None:
    known = find_topic(raw, topic())
    stamps = (5_000, 7_000, 6_000)
    produce(raw, known, batches.batch([batches.Rec(timestamp=stamp) for stamp in stamps]))
    latest = list_offset(raw, known, LATEST, version)
    assert (latest.error_code, latest.offset, latest.timestamp) == (0, 3, -1)
    assert list_offset(raw, known, EARLIEST, version).offset == 0
    timed = list_offset(raw, known, 5_500, version)
    assert (timed.offset, timed.timestamp) == (1, 7_000)
    later = list_offset(raw, known, 7_001, version)
    assert (later.error_code, later.offset, later.timestamp) == (0, -1, -1)
    if version >= 4:
        assert latest.leader_epoch == 0
    if version >= 7:
        newest = list_offset(raw, known, -3, version)
        assert (newest.error_code, newest.offset, newest.timestamp) == (0, 1, 7_000)


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id(raw: RawClient, version: int) -> None:
    (first, epoch), (second, _) = init_producer(raw, version), init_producer(raw, version)
    assert epoch == 0
    assert 0 <= first < second


@pytest.mark.parametrize("version", [2, 3, 4])
def test_offset_for_leader_epoch(raw: RawClient, topic: TopicMaker, version: int) -> None:
    known = find_topic(raw, topic())
    produce(raw, known, batches.batch([b"a", b"b"]))

    def ask(epoch: int, current: int = -1) -> tuple[int, int, int]:
        partition = OffsetForLeaderPartition(
            partition=0, leader_epoch=epoch, current_leader_epoch=current
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=known.name, partitions=[partition])]
        )
        [found] = raw.call(request, version).topics[0].partitions
        return found.error_code, found.leader_epoch, found.end_offset

    assert ask(0) == (0, 0, 2)
    assert ask(7) == (0, -1, -1)
    assert ask(0, current=5)[0] == 75  # UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", range(2, 8))
def test_create_and_delete_topics(raw: RawClient, topic_name: object, version: int) -> None:
    name = topic_name()  # type: ignore[operator]
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1)]
    [made] = raw.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), version).topics
    assert (made.name, made.error_code) == (name, 0)
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (1, 1)
        assert made.configs, "Java's admin client fails without them"
    delete_version = min(version, 6)
    request = DeleteTopicsRequest(
        topic_names=[name] if delete_version < 6 else [],
        topics=[DeleteTopicState(name=name)] if delete_version >= 6 else [],
        timeout_ms=10_000,
    )
    [deleted] = raw.call(request, delete_version).responses
    assert (deleted.name, deleted.error_code) == (name, 0)


def test_delete_by_id(raw: RawClient, topic: TopicMaker) -> None:
    known = find_topic(raw, topic())
    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=known.id)], timeout_ms=10_000)
    [deleted] = raw.call(request, 6).responses
    assert (deleted.error_code, deleted.topic_id) == (0, known.id)
    [again] = raw.call(request, 6).responses
    assert (again.error_code, again.topic_id) == (100, known.id)


@pytest.mark.parametrize("version", range(3))
def test_delete_records(raw: RawClient, topic: TopicMaker, version: int) -> None:
    known = find_topic(raw, topic())
    produce(raw, known, batches.batch([b"a", b"b", b"c"]))
    partitions = [
        DeleteRecordsPartition(partition_index=0, offset=2),
        DeleteRecordsPartition(partition_index=5, offset=2),
    ]
    topics = [DeleteRecordsTopic(name=known.name, partitions=partitions)]
    answer = raw.call(DeleteRecordsRequest(topics=topics, timeout_ms=10_000), version)
    found = {
        p.partition_index: (p.error_code, p.low_watermark) for p in answer.topics[0].partitions
    }
    assert found == {0: (0, 2), 5: (3, -1)}
    assert list_offset(raw, known, EARLIEST).offset == 2
    assert fetch(raw, known, 1).error_code == 1


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs(raw: RawClient, topic: TopicMaker, version: int) -> None:
    name = topic(config={"retention.ms": "77"})
    resource = DescribeConfigsResource(
        resource_type=2, resource_name=name, configuration_keys=["retention.ms"]
    )
    [found] = raw.call(DescribeConfigsRequest(resources=[resource]), version).results
    [entry] = found.configs
    assert (entry.name, entry.value, entry.config_source) == ("retention.ms", "77", 1)


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster(node: BrokerProcess, raw: RawClient, version: int) -> None:
    answer = raw.call(DescribeClusterRequest(), version)
    assert answer.error_code == 0
    assert [(b.host, b.port) for b in answer.brokers] == [("127.0.0.1", node.port)]


@pytest.mark.parametrize("version", range(1, 6))
def test_describe_log_dirs(node: BrokerProcess, raw: RawClient, version: int) -> None:
    [found] = raw.call(DescribeLogDirsRequest(topics=None), version).results
    assert (found.error_code, found.log_dir) == (0, str(node.data_dir))
    if version >= 4:
        assert found.total_bytes > found.usable_bytes > 0


@pytest.mark.parametrize(
    ("api_key", "version"), [(ApiKey.FETCH, 3), (ApiKey.FETCH, 99), (ApiKey.METADATA, 14), (999, 0)]
)
def test_what_nobody_offers_closes_the_connection(
    node: BrokerProcess, raw: RawClient, api_key: int, version: int
) -> None:
    raw.send_frame(raw.header(api_key, version, header_version=1) + bytes(20))
    assert raw.is_closed(10)
    with RawClient(node.host, node.port) as other:
        assert other.call(ApiVersionsRequest(), 0).error_code == 0


def test_answers_come_in_the_order_of_the_requests(raw: RawClient, topic: TopicMaker) -> None:
    known = find_topic(raw, topic())
    ids = [raw.send(fetch_request([(known, {0: 0})], 12, max_wait_ms=300), 12)]
    ids.append(raw.send(produce_request(known, batches.batch([b"x"]), 9), 9))
    ids.append(raw.send(ApiVersionsRequest(), 0))
    for kind, version, due in zip(
        (FetchRequest, ProduceRequest, ApiVersionsRequest), (12, 9, 0), ids, strict=True
    ):
        assert raw.receive(kind, version, due) is not None


def test_no_client_id(node: BrokerProcess) -> None:
    with RawClient(node.host, node.port, client_id=None) as client:
        assert client.call(MetadataRequest(topics=None), 5).brokers
        assert client.call(MetadataRequest(topics=None), 12).brokers
