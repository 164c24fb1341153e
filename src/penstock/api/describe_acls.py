"""DescribeAcls (29), versions 1 to 3: the ACLs that match a filter, by resource."""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


@handler(DescribeAclsRequest, DescribeAclsResponse)
async def describe_acls(
    services: Services, request: Request[DescribeAclsRequest]
) -> DescribeAclsResponse:
    try:
        return await services.security.acls(request.principal, request.body)
    except ApiError as e:
        return DescribeAclsResponse(error_code=e.code, error_message=e.message)
