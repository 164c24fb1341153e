"""AlterClientQuotas (49), versions 0 to 1: quotas of users, client ids and addresses are set or
removed, each entity by itself.

Unlike Kafka, an entity that is in a request twice is not changed at all, and an address is never
the name of a host.
"""

from __future__ import annotations

from penstock.api.controller import ask
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ResponseEntryData,
)


@handler(AlterClientQuotasRequest, AlterClientQuotasResponse, on_controller=True)
async def alter_client_quotas(
    services: Services, request: Request[AlterClientQuotasRequest]
) -> AlterClientQuotasResponse:
    try:
        return await ask(services, request, AlterClientQuotasResponse)
    except ApiError as e:
        return AlterClientQuotasResponse(
            entries=[
                ResponseEntryData(error_code=e.code, error_message=e.message, entity=entry.entity)
                for entry in request.body.entries
            ]
        )
