"""Fetch (1), versions 4 to 18: long polling, incremental sessions, both isolation levels.

A request with a replica id is a follower's: it reads up to the log's end, and its offsets are the
follower's progress. Consumers learn of a replica in their rack (v11+) and of new leaders (v16+).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import Final

from penstock.api.metering import mute
from penstock.api.quorum import fetch_metadata, is_of_metadata
from penstock.api.registry import DECODED_AT_ONCE_BYTES_MAX, raw_handler
from penstock.base.errors import ApiError
from penstock.base.ids import TopicKey
from penstock.base.results import LeaderEndpoint
from penstock.base.steps import Steps
from penstock.net.exchange import Exchange
from penstock.net.turn import begin
from penstock.serving.read_in_flight import ReadRequest, ReadResult
from penstock.serving.read_plan import READ_COMMITTED, ReadParams
from penstock.serving.read_session import (
    NO_SESSION_ID,
    FetchPartition,
    PartitionKey,
    ReadContext,
)
from penstock.serving.services import Services
from penstock.wire.errors import WireError
from penstock.wire.fetch_codec import (
    ENDPOINTS_FROM,
    PREFERRED_REPLICA_FROM,
    SESSIONS_FROM,
    encode_fetch_response,
    encode_in_steps,
)
from penstock.wire.messages.fetch import FetchRequest, FetchResponse, FetchTopic, ForgottenTopic

log = logging.getLogger("penstock.api")

TOPIC_ID_FROM: Final = 13
REPLICA_STATE_FROM: Final = 15
PARTITIONS_PER_STEP: Final = 64
"""Partitions of a wide request that are handled before others may run."""


@raw_handler(FetchRequest, FetchResponse)
def fetch(services: Services, exchange: Exchange, frame: memoryview, position: int) -> None:
    if len(frame) - position > DECODED_AT_ONCE_BYTES_MAX:
        exchange.connection.hold(len(frame))
        steps = _fetch_in_steps(services, exchange, frame, position)
        exchange.on_abandoned = steps.close
        begin(steps)
        return
    version = exchange.version
    request, _ = FetchRequest.decode_from(frame, position, version)
    if is_of_metadata(request):
        fetch_metadata(services, exchange, request)
        return
    by_topic_id = version >= TOPIC_ID_FROM
    params = _params(request, version)
    wanted = _wanted(request.topics, by_topic_id)
    forgotten = _forgotten(request, by_topic_id) if request.forgotten_topics_data else []
    try:
        context = _context(services, request, version, wanted, forgotten, params)
    except ApiError as e:
        _refuse(services, exchange, e)
    else:
        _read(services, exchange, context, params)


def _fetch_in_steps(
    services: Services, exchange: Exchange, frame: memoryview, position: int
) -> Steps[None]:
    """The same for a request that names very many partitions: others are served in between."""
    version = exchange.version
    try:
        request, _ = yield from FetchRequest.decode_in_steps(frame, position, version)
        if is_of_metadata(request):
            fetch_metadata(services, exchange, request)
            return
        params = _params(request, version)
        context = yield from _context_in_steps(services, request, version, params)
        exchange.on_abandoned = None
        _read(services, exchange, context, params)
    except ApiError as e:
        _refuse(services, exchange, e)
    except WireError as broken:
        exchange.connection.refuse(str(broken))
    except Exception:
        log.exception("a Fetch request for many partitions failed unexpectedly")
        exchange.connection.abort()
    finally:
        exchange.connection.release()


def _context_in_steps(
    services: Services, request: FetchRequest, version: int, params: ReadParams
) -> Steps[ReadContext]:
    by_topic_id = version >= TOPIC_ID_FROM
    some = _some_at_a_time(request.topics)
    first = _wanted(next(some, []), by_topic_id)
    context = _context(services, request, version, first, [], params)
    for topics in some:
        context.session.update(_wanted(topics, by_topic_id), ())
        yield
    if context.incremental:
        for topic in request.forgotten_topics_data:
            for at in range(0, len(topic.partitions), PARTITIONS_PER_STEP):
                some_of_it = topic.partitions[at : at + PARTITIONS_PER_STEP]
                services.sessions.forget(context.session, _keys(topic, some_of_it, by_topic_id))
                yield
    return context


def _some_at_a_time(topics: list[FetchTopic]) -> Iterator[list[FetchTopic]]:
    """The topics with their partitions, about `PARTITIONS_PER_STEP` in each list."""
    some: list[FetchTopic] = []
    room = PARTITIONS_PER_STEP
    for topic in topics:
        for at in range(0, len(topic.partitions), PARTITIONS_PER_STEP):
            partitions = topic.partitions[at : at + PARTITIONS_PER_STEP]
            some.append(
                FetchTopic(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions)
            )
            room -= len(partitions)
            if room <= 0:
                yield some
                some, room = [], PARTITIONS_PER_STEP
    yield some


def _wanted(topics: list[FetchTopic], by_topic_id: bool) -> list[FetchPartition]:
    return [
        FetchPartition(
            topic.topic_id if by_topic_id else topic.topic,
            partition.partition,
            partition.fetch_offset,
            partition.partition_max_bytes,
            partition.current_leader_epoch,
            partition.last_fetched_epoch,
            partition.log_start_offset,
        )
        for topic in topics
        for partition in topic.partitions
    ]


def _context(
    services: Services,
    request: FetchRequest,
    version: int,
    wanted: list[FetchPartition],
    forgotten: list[PartitionKey],
    params: ReadParams,
) -> ReadContext:
    return services.sessions.context(
        request.session_id,
        request.session_epoch if version >= SESSIONS_FROM else -1,
        wanted,
        forgotten,
        by_topic_id=version >= TOPIC_ID_FROM,
        now_ms=services.now_ms(),
        replica_id=params.replica_id,
    )


def _refuse(services: Services, exchange: Exchange, error: ApiError) -> None:
    services.count_error(exchange.api_key, error.code)
    exchange.finish(
        encode_fetch_response(exchange.correlation_id, exchange.version, error.code, 0, [])
    )


def _read(services: Services, exchange: Exchange, context: ReadContext, params: ReadParams) -> None:
    waiting = services.read(
        ReadRequest(exchange.connection.principal, context, params, exchange.usage),
        partial(_answer, services, exchange),
    )
    if waiting is not None:
        exchange.on_abandoned = waiting.cancel
        if params.is_follower:
            exchange.on_followed = waiting.end_of_wait


def _answer(services: Services, exchange: Exchange, result: ReadResult) -> None:
    exchange.local_done_ns = result.waits_since_ns
    if result.throttle_ms:
        _throttle(services, exchange, result)
        return
    if result.is_wide or result.failed:
        begin(_answer_in_steps(services, exchange, result))
        return
    try:
        for code in result.error_codes:
            services.count_error(exchange.api_key, code)
        endpoints = _endpoints(services, exchange, result) if result.leaders else ()
        frame = encode_fetch_response(
            exchange.correlation_id,
            exchange.version,
            0,
            result.session_id,
            result.topics,
            endpoints,
        )
        exchange.finish(frame)
    except Exception:
        _failed(exchange)


def _throttle(services: Services, exchange: Exchange, result: ReadResult) -> None:
    """The client is given nothing, and has to wait; KIP-219 has a new session end with that."""
    session_id = result.session_id
    if result.session_is_new:
        services.sessions.end(session_id)
        session_id = NO_SESSION_ID
    mute(exchange.connection, result.throttle_ms)
    exchange.finish(
        encode_fetch_response(
            exchange.correlation_id, exchange.version, 0, session_id, [], (), result.throttle_ms
        )
    )


def _answer_in_steps(services: Services, exchange: Exchange, result: ReadResult) -> Steps[None]:
    if result.failed:
        exchange.connection.abort()
        return
    try:
        for number, code in enumerate(result.error_codes):
            services.count_error(exchange.api_key, code)
            if number % PARTITIONS_PER_STEP == 0:
                yield
        frame = yield from encode_in_steps(
            exchange.correlation_id,
            exchange.version,
            result.session_id,
            result.topics,
            _endpoints(services, exchange, result) if result.leaders else (),
        )
        exchange.finish(frame)
    except Exception:
        _failed(exchange)


def _failed(exchange: Exchange) -> None:
    """A response that fails must not affect others that wait for the same partition."""
    log.exception("a Fetch request could not be answered")
    exchange.connection.abort()


def _endpoints(services: Services, exchange: Exchange, result: ReadResult) -> list[LeaderEndpoint]:
    connection = exchange.connection
    return services.cluster.endpoints(connection.principal, result.leaders, connection.listener)


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
        keys += _keys(topic, topic.partitions, by_topic_id)
    return keys


def _keys(topic: ForgottenTopic, partitions: list[int], by_topic_id: bool) -> list[PartitionKey]:
    key: TopicKey = topic.topic_id if by_topic_id else topic.topic
    return [(key, index) for index in partitions]
