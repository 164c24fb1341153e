"""Redrive (20003), version 0: records that a share group has given up are its work again. Ours.

A node answers for the partitions that it leads. The answer has an outcome for each part of each
range: revived, gone from the log, unfinished anyway, or not given up yet. With `validate_only`
nothing is changed.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError, ErrorCode
from penstock.serving.services import Services
from penstock.wire.messages.redrive import RedriveRequest, RedriveResponse


@handler(RedriveRequest, RedriveResponse)
async def redrive(services: Services, request: Request[RedriveRequest]) -> RedriveResponse:
    if not services.cluster.has_share_groups:
        return RedriveResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        return await services.queues.redrive(request.principal, request.body)
    except ApiError as e:
        return RedriveResponse(error_code=e.code, error_message=e.message)
