"""CreateDelegationToken (38), versions 1 to 3: a token with which its owner logs in for a while."""

from __future__ import annotations

from penstock.api.controller import ask
from penstock.api.delegation_tokens import REQUESTER_FROM, check_channel
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)


@handler(CreateDelegationTokenRequest, CreateDelegationTokenResponse, on_controller=True)
async def create_delegation_token(
    services: Services, request: Request[CreateDelegationTokenRequest]
) -> CreateDelegationTokenResponse:
    try:
        check_channel(services, request)
        response = await ask(services, request, CreateDelegationTokenResponse)
    except ApiError as e:
        requester, body = request.principal, request.body
        named = bool(body.owner_principal_name)
        response = CreateDelegationTokenResponse(
            error_code=e.code,
            principal_type=(body.owner_principal_type or "") if named else requester.type,
            principal_name=(body.owner_principal_name or "") if named else requester.name,
            token_requester_principal_type=requester.type,
            token_requester_principal_name=requester.name,
        )
    if request.version < REQUESTER_FROM:
        response.token_requester_principal_type = response.token_requester_principal_name = ""
    return response
