"""Produce (0), versions 3 to 13.

Kafka advertises it from version 0, since librdkafka disables features when it does not see
version 2; so do we (see ApiVersions). Versions 0 to 2 close the connection, as there.
A node that stops hangs up on what its replicas have not decided (docs/durability.md).
Differences from Kafka: the records inside an uncompressed batch are looked at only when something
needs it (see `partitions.batch_validation`). A transactional batch in a request without a
transactional id is refused alone, not with the whole request, and one without a producer id is
refused: nothing would ever commit it.
"""

from __future__ import annotations

import logging
from typing import Final

from penstock.api.metering import mute
from penstock.api.registry import raw_handler
from penstock.base.errors import ErrorCode
from penstock.net.exchange import Exchange
from penstock.serving.append import AppendRequest, AppendResult, SupportedOperation
from penstock.serving.services import Services
from penstock.wire.messages.produce import ProduceRequest, ProduceResponse
from penstock.wire.produce_codec import decode_produce_request, encode_produce_response

log = logging.getLogger("penstock.api")

ZSTD_FROM: Final = 7
ABORTABLE_FROM: Final = 11
"""The first version that knows TRANSACTION_ABORTABLE."""
ADDS_FROM: Final = 12
"""The first version that puts its partitions into the transaction (KIP-890)."""

_OPERATIONS: Final = (
    *(SupportedOperation.DEFAULT_ERROR for _ in range(ABORTABLE_FROM)),
    *(SupportedOperation.GENERIC_ERROR for _ in range(ABORTABLE_FROM, ADDS_FROM)),
    *(SupportedOperation.ADD_PARTITION for _ in range(ADDS_FROM, ProduceRequest.VERSIONS.stop)),
)
"""What a transactional client expects of the broker, by version."""


@raw_handler(ProduceRequest, ProduceResponse)
def produce(services: Services, exchange: Exchange, frame: memoryview, position: int) -> None:
    version = exchange.version
    connection = exchange.connection
    transactional_id, acks, timeout_ms, topics = decode_produce_request(frame, position, version)
    request = AppendRequest(
        connection.principal,
        connection,
        acks,
        timeout_ms,
        topics,
        exchange.usage,
        transactional_id,
        _OPERATIONS[version],
        version >= ZSTD_FROM,
    )
    services.append(request, lambda result: _answer(services, exchange, acks, result))


def _answer(services: Services, exchange: Exchange, acks: int, result: AppendResult) -> None:
    exchange.local_done_ns = result.waits_since_ns
    try:
        if result.throttle_ms:
            mute(exchange.connection, result.throttle_ms)
        if result.failed:
            if _is_undecided(result):
                exchange.connection.abort()
                return
            _count_errors(services, exchange, result)
            if not acks:
                # A producer without acknowledgements can only be told by a closed connection.
                exchange.connection.refuse("a Produce request with acks=0 failed")
        if not acks:
            exchange.finish(None)
        elif result.leaders is None:
            exchange.finish(
                encode_produce_response(
                    exchange.correlation_id, exchange.version, result.topics, (), result.throttle_ms
                )
            )
        else:
            exchange.finish(_with_leaders(services, exchange, result, result.leaders))
    except Exception:
        # One answer that cannot be given must not cost the others of the turn theirs.
        log.exception("a Produce request could not be answered")
        exchange.connection.abort()


def _with_leaders(
    services: Services, exchange: Exchange, result: AppendResult, leaders: set[int]
) -> bytes:
    connection = exchange.connection
    endpoints = services.cluster.endpoints(connection.principal, leaders, connection.listener)
    return encode_produce_response(
        exchange.correlation_id, exchange.version, result.topics, endpoints, result.throttle_ms
    )


def _is_undecided(result: AppendResult) -> bool:
    """Whether nobody knows (yet) what becomes of a batch, since this node stops. An idempotent
    producer sends it again after a lost connection, and it is known for a copy; an error in an
    answer could make the producer give it up.
    """
    undecided = ErrorCode.NETWORK_EXCEPTION
    return any(a.error_code == undecided for _, answers in result.topics for a in answers)


def _count_errors(services: Services, exchange: Exchange, result: AppendResult) -> None:
    for _, answers in result.topics:
        for answer in answers:
            services.count_error(exchange.api_key, answer.error_code)
