"""Fetch (1), versions 4 to 18: long polling, incremental sessions, both isolation levels.

Not here yet: fetching by other brokers (replica ids), which comes with replication; such a
request is treated as a consumer's.
"""

from __future__ import annotations

from penstock.api.registry import raw_handler
from penstock.base.errors import ApiError
from penstock.broker.broker import Broker
from penstock.broker.fetch import READ_COMMITTED, FetchParams
from penstock.broker.fetch_session import FetchPartition, PartitionKey
from penstock.net.connection import Exchange
from penstock.wire.fetch_codec import SESSIONS_FROM, encode_fetch_response
from penstock.wire.messages.fetch import FetchRequest, FetchResponse
from penstock.wire.produce_codec import TopicKey

TOPIC_ID_FROM = 13


@raw_handler(FetchRequest, FetchResponse)
def fetch(broker: Broker, exchange: Exchange, frame: memoryview, position: int) -> None:
    version = exchange.version
    request, _ = FetchRequest.decode_from(frame, position, version)
    by_topic_id = version >= TOPIC_ID_FROM
    wanted = [
        FetchPartition(
            topic.topic_id if by_topic_id else topic.topic,
            partition.partition,
            partition.fetch_offset,
            partition.partition_max_bytes,
            partition.current_leader_epoch,
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    try:
        context = broker.fetch_sessions.context(
            request.session_id,
            request.session_epoch if version >= SESSIONS_FROM else -1,
            wanted,
            _forgotten(request, by_topic_id),
            by_topic_id=by_topic_id,
            now_ms=broker.clock.now_ms(),
        )
    except ApiError as e:
        broker.count_error(exchange.api_key, e.code)
        exchange.finish(encode_fetch_response(exchange.correlation_id, version, e.code, 0, []))
        return
    params = FetchParams(
        request.max_wait_ms,
        min(request.min_bytes, request.max_bytes),
        request.max_bytes,
        read_committed=request.isolation_level == READ_COMMITTED,
    )
    broker.fetcher.handle(exchange, context, params)


def _forgotten(request: FetchRequest, by_topic_id: bool) -> list[PartitionKey]:
    keys: list[PartitionKey] = []
    for topic in request.forgotten_topics_data:
        key: TopicKey = topic.topic_id if by_topic_id else topic.topic
        keys += [(key, index) for index in topic.partitions]
    return keys
