"""WriteTxnMarkers (27), versions 1 and 2: a transaction coordinator ends transactions here.

Version 1 names no transaction version; such markers are of versions 0 or 1.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.serving.services import Services
from penstock.wire.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


@handler(WriteTxnMarkersRequest, WriteTxnMarkersResponse)
async def write_txn_markers(
    services: Services, request: Request[WriteTxnMarkersRequest]
) -> WriteTxnMarkersResponse:
    return await services.transactions.write_markers(request.principal, request.body)
