"""RenewDelegationToken (39), versions 1 and 2: a token can be used for longer, up to its end."""

from __future__ import annotations

from penstock.api.controller import ask
from penstock.api.delegation_tokens import check_channel
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


@handler(RenewDelegationTokenRequest, RenewDelegationTokenResponse, on_controller=True)
async def renew_delegation_token(
    services: Services, request: Request[RenewDelegationTokenRequest]
) -> RenewDelegationTokenResponse:
    try:
        check_channel(services, request)
        return await ask(services, request, RenewDelegationTokenResponse)
    except ApiError as e:
        return RenewDelegationTokenResponse(error_code=e.code)
