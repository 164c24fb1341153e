"""InitProducerId (22), versions 0 to 5: a producer id for idempotent producers.

An idempotent producer that asks again, with the id it has, gets a new id, as in Kafka; an id
without an epoch, or an epoch without an id, is an INVALID_REQUEST. Transactions are not here yet:
a transactional id is answered with INVALID_REQUEST too, which clients do not retry.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError, ErrorCode
from penstock.broker.broker import Broker
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


@handler(InitProducerIdRequest, InitProducerIdResponse)
async def init_producer_id(
    broker: Broker, request: Request[InitProducerIdRequest]
) -> InitProducerIdResponse:
    body = request.body
    if body.transactional_id is not None or (body.producer_id < 0) != (body.producer_epoch < 0):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    try:
        producer_id = await broker.producer_ids.next()
    except ApiError as e:
        return InitProducerIdResponse(error_code=e.code, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
