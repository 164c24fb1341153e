"""WriteTxnMarkers (27), versions 1 and 2: a transaction coordinator ends transactions here.

Version 1 names no transaction version; such markers are of versions 0 or 1.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.serving.broker import Broker
from penstock.wire.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


@handler(WriteTxnMarkersRequest, WriteTxnMarkersResponse)
async def write_txn_markers(
    broker: Broker, request: Request[WriteTxnMarkersRequest]
) -> WriteTxnMarkersResponse:
    return await broker.markers_here.write(request.body)
