"""DescribeDelegationToken (41), versions 1 to 3: tokens of some owners, or all that may be seen.

Answered from the metadata of this node, which may be a moment behind a token that was just made.
"""

from __future__ import annotations

from penstock.api.delegation_tokens import REQUESTER_FROM, check_channel
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


@handler(DescribeDelegationTokenRequest, DescribeDelegationTokenResponse)
async def describe_delegation_token(
    services: Services, request: Request[DescribeDelegationTokenRequest]
) -> DescribeDelegationTokenResponse:
    try:
        check_channel(services, request)
        response = await services.security.delegation_tokens(request.principal, request.body)
    except ApiError as e:
        return DescribeDelegationTokenResponse(error_code=e.code)
    if request.version < REQUESTER_FROM:
        for token in response.tokens:
            token.token_requester_principal_type = token.token_requester_principal_name = ""
    return response
