"""DescribeProducers (61), version 0: the idempotent and transactional producers of partitions."""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.metadata.names import check_topic_name
from penstock.serving.broker import Broker
from penstock.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


@handler(DescribeProducersRequest, DescribeProducersResponse)
def describe_producers(
    broker: Broker, request: Request[DescribeProducersRequest]
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_describe(broker, topic.name, i) for i in topic.partition_indexes],
            )
            for topic in request.body.topics
        ]
    )


def _describe(broker: Broker, topic: str, index: int) -> PartitionResponse:
    try:
        check_topic_name(topic)
        producers = broker.replicas.leader_of(topic, index).log.producers
    except ApiError as e:
        return PartitionResponse(
            partition_index=index, error_code=e.code, error_message=e.message or None
        )
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.current_txn_first_offset,
            )
            for entry in producers.producers.values()
        ],
    )
