"""AllocateProducerIds (67), version 0: a broker takes a block of producer ids.

A block is given out once; what a broker does not use of it is lost.
"""

from __future__ import annotations

from penstock.api.controller import decide
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)


@handler(AllocateProducerIdsRequest, AllocateProducerIdsResponse)
async def allocate_producer_ids(
    services: Services, request: Request[AllocateProducerIdsRequest]
) -> AllocateProducerIdsResponse:
    try:
        return await decide(services, request, AllocateProducerIdsResponse)
    except ApiError as e:
        return AllocateProducerIdsResponse(error_code=e.code)
