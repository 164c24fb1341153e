"""AlterShareGroupOffsets (91), version 0: move where share groups without members start."""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError, ErrorCode
from penstock.serving.services import Services
from penstock.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)


@handler(AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse)
async def alter_share_group_offsets(
    services: Services, request: Request[AlterShareGroupOffsetsRequest]
) -> AlterShareGroupOffsetsResponse:
    if not services.cluster.has_share_groups:
        return AlterShareGroupOffsetsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        return await services.share_groups.alter_offsets(request.principal, request.body)
    except ApiError as e:
        return AlterShareGroupOffsetsResponse(error_code=e.code, error_message=e.message)
