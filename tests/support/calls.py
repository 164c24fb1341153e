"""The requests that raw tests send again and again, in the shape that each version wants."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

from .raw import RawClient
from .waiting import eventually

PRODUCE_BY_ID = 13
FETCH_BY_ID = 13
LATEST = -1
COORDINATOR_LOAD_IN_PROGRESS = 14


class RawTopic(NamedTuple):
    """A topic by both of its names."""

    name: str
    id: bytes


def find_topic(client: RawClient, name: str) -> RawTopic:
    """Asks the broker for the id of a topic."""
    answer = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12)
    [topic] = answer.topics
    assert topic.error_code == 0, f"{name}: error {topic.error_code}"
    return RawTopic(name, topic.topic_id)


def produce_request(
    topic: RawTopic, records: bytes | None, version: int, *, partition: int = 0, acks: int = -1
) -> ProduceRequest:
    """A produce request for one partition."""
    named = {"topic_id": topic.id} if version >= PRODUCE_BY_ID else {"name": topic.name}
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(partition_data=[data], **named)]
    )


def produce(
    client: RawClient, topic: RawTopic, records: bytes | None, version: int = 12, **how: Any
) -> Any:
    """Sends records to one partition and returns that partition's answer."""
    answer = client.call(produce_request(topic, records, version, **how), version)
    [of_topic] = answer.responses
    [of_partition] = of_topic.partition_responses
    return of_partition


def fetch_request(
    topics: list[tuple[RawTopic, dict[int, int]]], version: int, **fields: Any
) -> FetchRequest:
    """A fetch request; each topic comes with {partition: offset}."""
    each = fields.pop("partition_max_bytes", 1 << 20)
    epoch = fields.pop("current_leader_epoch", -1)
    forgotten = fields.pop("forgotten", [])
    base = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 24}
    return FetchRequest(
        **(base | fields),
        topics=[
            FetchTopic(
                **_named(topic, version),
                partitions=[
                    FetchPartition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=each,
                        current_leader_epoch=epoch,
                    )
                    for partition, offset in offsets.items()
                ],
            )
            for topic, offsets in topics
        ],
        forgotten_topics_data=[
            ForgottenTopic(**_named(topic, version), partitions=partitions)
            for topic, partitions in forgotten
        ],
    )


def _named(topic: RawTopic, version: int) -> dict[str, Any]:
    return {"topic_id": topic.id} if version >= FETCH_BY_ID else {"topic": topic.name}


def fetch(client: RawClient, topic: RawTopic, offset: int, version: int = 16, **fields: Any) -> Any:
    """Fetches one partition and returns that partition's answer."""
    offsets = {fields.pop("partition", 0): offset}
    answer = client.call(fetch_request([(topic, offsets)], version, **fields), version)
    assert answer.error_code == 0, f"fetch answered {answer.error_code}"
    [of_topic] = answer.responses
    [of_partition] = of_topic.partitions
    return of_partition


def list_offset(
    client: RawClient, topic: RawTopic, timestamp: int, version: int = 9, **fields: Any
) -> Any:
    """Asks for one offset and returns that partition's answer."""
    partition = ListOffsetsPartition(
        partition_index=fields.pop("partition", 0),
        timestamp=timestamp,
        current_leader_epoch=fields.pop("current_leader_epoch", -1),
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsTopic(name=topic.name, partitions=[partition])],
        **fields,
    )
    [of_topic] = client.call(request, version).topics
    [of_partition] = of_topic.partitions
    return of_partition


def init_producer(client: RawClient, version: int = 4) -> tuple[int, int]:
    """A new idempotent producer's id and epoch; a broker that has none ready is asked again."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)

    def answered() -> Any:
        answer = client.call(request, version)
        return None if answer.error_code == COORDINATOR_LOAD_IN_PROGRESS else answer

    answer = eventually(answered)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


def leads_all(client: RawClient, name: str, partitions: int) -> bool:
    """Whether the broker serves every partition of a topic."""
    asked = [ListOffsetsPartition(partition_index=p, timestamp=LATEST) for p in range(partitions)]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=asked)]
    )
    [of_topic] = client.call(request, 7).topics
    return all(p.error_code == 0 for p in of_topic.partitions)
