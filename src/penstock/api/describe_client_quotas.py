"""DescribeClientQuotas (48), versions 0 to 1: the quotas of the entities that a filter matches.

Answered from the metadata of this node.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)


@handler(DescribeClientQuotasRequest, DescribeClientQuotasResponse)
async def describe_client_quotas(
    services: Services, request: Request[DescribeClientQuotasRequest]
) -> DescribeClientQuotasResponse:
    try:
        return await services.quotas.describe(request.principal, request.body)
    except ApiError as e:
        return DescribeClientQuotasResponse(
            error_code=e.code, error_message=e.message, entries=None
        )
