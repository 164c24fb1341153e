"""FetchSnapshot (59), versions 0 and 1: a piece of a snapshot of the metadata."""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse


@handler(FetchSnapshotRequest, FetchSnapshotResponse)
async def fetch_snapshot(
    services: Services, request: Request[FetchSnapshotRequest]
) -> FetchSnapshotResponse:
    try:
        response: FetchSnapshotResponse = await services.quorum.fetch_snapshot(
            request.principal, request.body, request.listener
        )
    except ApiError as e:
        return FetchSnapshotResponse(error_code=e.code)
    return response
