"""AlterRole (20000), version 0: a role is made or deleted, or gets other members. Ours."""

from __future__ import annotations

from penstock.api.controller import ask
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.alter_role import AlterRoleRequest, AlterRoleResponse


@handler(AlterRoleRequest, AlterRoleResponse, on_controller=True)
async def alter_role(services: Services, request: Request[AlterRoleRequest]) -> AlterRoleResponse:
    try:
        return await ask(services, request, AlterRoleResponse)
    except ApiError as e:
        return AlterRoleResponse(error_code=e.code, error_message=e.message)
