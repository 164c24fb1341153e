"""FetchSnapshot (59), versions 0 and 1: a piece of a snapshot of the metadata."""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.serving.services import Services
from penstock.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse


@handler(FetchSnapshotRequest, FetchSnapshotResponse)
async def fetch_snapshot(
    services: Services, request: Request[FetchSnapshotRequest]
) -> FetchSnapshotResponse:
    response: FetchSnapshotResponse = await services.quorum.fetch_snapshot(
        request.principal, request.body
    )
    return response
