"""ReadShareGroupStateSummary (87), versions 0 and 1: where share-partitions begin,
without their records, for a group's coordinator."""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.api.share_states import serve
from penstock.serving.services import Services
from penstock.wire.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)


@handler(ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse)
async def read_share_group_state_summary(
    services: Services, request: Request[ReadShareGroupStateSummaryRequest]
) -> ReadShareGroupStateSummaryResponse:
    return await serve(services, request, ReadShareGroupStateSummaryResponse)
