"""Fetch (1), versions 4 to 18: long polling, incremental sessions, both isolation levels.

A request with a replica id is a follower's: it reads up to the log's end, and its offsets are the
follower's progress. Consumers learn of a replica in their rack (v11+) and of new leaders (v16+).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from penstock.api.quorum import fetch_metadata, is_of_metadata
from penstock.api.registry import ANONYMOUS, raw_handler
from penstock.base.errors import ApiError
from penstock.base.ids import TopicKey
from penstock.base.results import LeaderEndpoint, Records
from penstock.net.connection import Exchange
from penstock.serving.read import ReadRequest, ReadResult
from penstock.serving.read_plan import READ_COMMITTED, ReadParams
from penstock.serving.read_session import FetchPartition, PartitionKey
from penstock.serving.services import Services
from penstock.wire.fetch_codec import (
    ENDPOINTS_FROM,
    PREFERRED_REPLICA_FROM,
    SESSIONS_FROM,
    encode_fetch_response,
)
from penstock.wire.messages.fetch import FetchRequest, FetchResponse

log = logging.getLogger("penstock.api")

TOPIC_ID_FROM: Final = 13
REPLICA_STATE_FROM: Final = 15


@raw_handler(FetchRequest, FetchResponse)
def fetch(services: Services, exchange: Exchange, frame: memoryview, position: int) -> None:
    version = exchange.version
    request, _ = FetchRequest.decode_from(frame, position, version)
    if is_of_metadata(request):
        fetch_metadata(services, exchange, request)
        return
    by_topic_id = version >= TOPIC_ID_FROM
    wanted = [
        FetchPartition(
            topic.topic_id if by_topic_id else topic.topic,
            partition.partition,
            partition.fetch_offset,
            partition.partition_max_bytes,
            partition.current_leader_epoch,
            partition.last_fetched_epoch,
            partition.log_start_offset,
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    params = _params(request, version)
    try:
        context = services.sessions.context(
            request.session_id,
            request.session_epoch if version >= SESSIONS_FROM else -1,
            wanted,
            _forgotten(request, by_topic_id),
            by_topic_id=by_topic_id,
            now_ms=services.now_ms(),
            replica_id=params.replica_id,
        )
    except ApiError as e:
        services.count_error(exchange.api_key, e.code)
        exchange.finish(encode_fetch_response(exchange.correlation_id, version, e.code, 0, []))
        return
    waiting = services.read(
        ReadRequest(ANONYMOUS, context, params), partial(_answer, services, exchange)
    )
    if waiting is not None:
        exchange.on_abandoned = waiting.cancel
        if params.is_follower:
            exchange.on_followed = waiting.end_of_wait


def _answer(services: Services, exchange: Exchange, result: ReadResult) -> None:
    exchange.local_done_ns = result.waits_since_ns
    try:
        for code in result.error_codes:
            services.count_error(exchange.api_key, code)
        exchange.finish(_encoded(services, exchange, result))
    except Exception:
        # A response that fails must not affect others that wait for the same partition.
        log.exception("a Fetch request could not be answered")
        exchange.connection.abort()


def _encoded(services: Services, exchange: Exchange, result: ReadResult) -> list[Records]:
    endpoints: list[LeaderEndpoint] = []
    if result.leaders:
        listener = exchange.connection.listener
        endpoints = services.cluster.endpoints(ANONYMOUS, result.leaders, listener)
    return encode_fetch_response(
        exchange.correlation_id, exchange.version, 0, result.session_id, result.topics, endpoints
    )


def _params(request: FetchRequest, version: int) -> ReadParams:
    state = request.replica_state
    has_state = version >= REPLICA_STATE_FROM
    replica_id = max(state.replica_id if has_state else request.replica_id, -1)
    return ReadParams(
        request.max_wait_ms,
        min(request.min_bytes, request.max_bytes),
        request.max_bytes,
        request.isolation_level == READ_COMMITTED,
        replica_id,
        broker_epoch=state.replica_epoch if has_state else -1,
        rack=request.rack_id,
        from_followers=version >= PREFERRED_REPLICA_FROM and replica_id < 0,
        hints=version >= ENDPOINTS_FROM,
    )


def _forgotten(request: FetchRequest, by_topic_id: bool) -> list[PartitionKey]:
    keys: list[PartitionKey] = []
    for topic in request.forgotten_topics_data:
        key: TopicKey = topic.topic_id if by_topic_id else topic.topic
        keys += [(key, index) for index in topic.partitions]
    return keys
