"""Produce (0), versions 3 to 13.

Kafka advertises it from version 0, since librdkafka disables features when it does not see
version 2; so do we (see ApiVersions). Versions 0 to 2 close the connection, as there.
Differences from Kafka: the
records inside a batch are looked at only when something needs it (see `broker.batch_validation`). A
transactional batch in a request without a transactional id is refused alone, not with the whole
request, and one without a producer id is refused: nothing would ever commit it.
"""

from __future__ import annotations

from penstock.api.registry import raw_handler
from penstock.net.connection import Exchange
from penstock.serving.broker import Broker
from penstock.wire.messages.produce import ProduceRequest, ProduceResponse
from penstock.wire.produce_codec import decode_produce_request


@raw_handler(ProduceRequest, ProduceResponse)
def produce(broker: Broker, exchange: Exchange, frame: memoryview, position: int) -> None:
    broker.producer.handle(exchange, decode_produce_request(frame, position, exchange.version))
