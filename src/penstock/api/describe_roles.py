"""DescribeRoles (20001), version 0: the named roles, or all, with their members. Ours.

Answered from the metadata of this node; a role that is not there is left out.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.describe_roles import DescribeRolesRequest, DescribeRolesResponse


@handler(DescribeRolesRequest, DescribeRolesResponse)
async def describe_roles(
    services: Services, request: Request[DescribeRolesRequest]
) -> DescribeRolesResponse:
    try:
        return await services.security.roles(request.principal, request.body)
    except ApiError as e:
        return DescribeRolesResponse(error_code=e.code, error_message=e.message)
