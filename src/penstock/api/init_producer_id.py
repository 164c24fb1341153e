"""InitProducerId (22), versions 0 to 5: an id and an epoch for a producer.

With a transactional id the transaction coordinator answers. An idempotent producer gets an id from
this node's stock, also when it asks again with the id it has, as in Kafka; an id without an epoch,
or an epoch without an id, is an INVALID_REQUEST.
"""

from __future__ import annotations

from typing import Final

from penstock.api.registry import Request, handler
from penstock.api.shards import given
from penstock.api.transactions import to_shard
from penstock.base.errors import ApiError, ErrorCode
from penstock.serving.services import Services
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

STOCK_WAIT_S: Final = 0.25
"""How long a transactional producer waits for the node's first block of producer ids."""


@handler(InitProducerIdRequest, InitProducerIdResponse)
async def init_producer_id(
    services: Services, request: Request[InitProducerIdRequest]
) -> InitProducerIdResponse:
    body = request.body
    try:
        services.transactions.check_producer(request.principal, body)
    except ApiError as e:
        return InitProducerIdResponse(error_code=e.code, producer_epoch=-1)
    if (body.producer_id < 0) != (body.producer_epoch < 0):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    if body.transactional_id is not None:
        # The coordinator cannot wait for one, and would refuse the request.
        await services.transactions.prepare_producer_ids(request.principal, STOCK_WAIT_S)
        answer = to_shard(services, request, body.transactional_id, body, InitProducerIdResponse)
        return await given(answer)
    try:
        producer_id = await services.transactions.new_producer_id(request.principal)
    except ApiError as e:
        return InitProducerIdResponse(error_code=e.code, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
