"""DeleteShareGroupOffsets (92), version 0: forget topics of share groups without members."""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError, ErrorCode
from penstock.serving.services import Services
from penstock.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)


@handler(DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse)
async def delete_share_group_offsets(
    services: Services, request: Request[DeleteShareGroupOffsetsRequest]
) -> DeleteShareGroupOffsetsResponse:
    if not services.cluster.has_share_groups:
        return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        return await services.share_groups.delete_offsets(request.principal, request.body)
    except ApiError as e:
        return DeleteShareGroupOffsetsResponse(error_code=e.code, error_message=e.message)
