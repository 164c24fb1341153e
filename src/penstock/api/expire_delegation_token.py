"""ExpireDelegationToken (40), versions 1 and 2: a token ends earlier, or at once."""

from __future__ import annotations

from penstock.api.controller import ask
from penstock.api.delegation_tokens import check_channel
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


@handler(ExpireDelegationTokenRequest, ExpireDelegationTokenResponse, on_controller=True)
async def expire_delegation_token(
    services: Services, request: Request[ExpireDelegationTokenRequest]
) -> ExpireDelegationTokenResponse:
    try:
        check_channel(services, request)
        return await ask(services, request, ExpireDelegationTokenResponse)
    except ApiError as e:
        return ExpireDelegationTokenResponse(error_code=e.code)
