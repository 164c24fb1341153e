"""CreateAcls (30), versions 1 to 3: rules about who may do what; one that exists stays."""

from __future__ import annotations

from penstock.api.controller import ask
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


@handler(CreateAclsRequest, CreateAclsResponse, on_controller=True)
async def create_acls(
    services: Services, request: Request[CreateAclsRequest]
) -> CreateAclsResponse:
    try:
        services.security.require_authorizer(request.principal)
        return await ask(services, request, CreateAclsResponse)
    except ApiError as e:
        refused = AclCreationResult(error_code=e.code, error_message=e.message)
        return CreateAclsResponse(results=[refused] * len(request.body.creations))
