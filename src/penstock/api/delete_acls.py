"""DeleteAcls (31), versions 1 to 3: remove the rules that match filters, all of them or none."""

from __future__ import annotations

from penstock.api.controller import ask
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


@handler(DeleteAclsRequest, DeleteAclsResponse, on_controller=True)
async def delete_acls(
    services: Services, request: Request[DeleteAclsRequest]
) -> DeleteAclsResponse:
    try:
        services.security.require_authorizer(request.principal)
        return await ask(services, request, DeleteAclsResponse)
    except ApiError as e:
        refused = DeleteAclsFilterResult(error_code=e.code, error_message=e.message)
        return DeleteAclsResponse(filter_results=[refused] * len(request.body.filters))
